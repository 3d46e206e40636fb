package main

import (
	"bytes"
	"context"
	"net"
	"testing"
)

// A stop while the database has not answered yet is a clean one.
func TestStopWhileConnecting(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		c, err := silent.Accept()
		if err == nil {
			defer c.Close()
		}
		stop()
		<-t.Context().Done()
	}()
	var out, errs bytes.Buffer
	status := Run(ctx, []string{"run", "--db", "postgres://u@" + silent.Addr().String() + "/x", "--nats", "nats://127.0.0.1:1"}, &out, &errs, nil)
	if status != 0 {
		t.Errorf("exit status %d, want 0: %s", status, errs.String())
	}
}
