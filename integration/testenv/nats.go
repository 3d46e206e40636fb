package testenv

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// StartNATS finds or starts a NATS server with JetStream. The caller stops it.
func StartNATS(ctx context.Context) (*Server, error) {
	if s := os.Getenv(EnvNATS); s != "" {
		return checkedNATS(ctx, &Server{URL: s, Origin: "environment"})
	}
	if os.Getenv(EnvLocal) == "1" && listening(ctx, "127.0.0.1:4222") {
		return checkedNATS(ctx, &Server{URL: natsgo.DefaultURL, Origin: "local"})
	}
	s, err := EmbeddedNATS(true)
	if err != nil {
		return nil, err
	}
	return checkedNATS(ctx, s)
}

// EmbeddedNATS starts a private server in this process, for tests that break
// it or want one without JetStream. The caller stops it.
func EmbeddedNATS(jetStream bool) (*Server, error) {
	// For the directory alone: it goes with this process, whatever ends it.
	dir, remove, err := supervise(context.Background(), "true", "true", false)
	if err != nil {
		return nil, err
	}
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: jetStream, StoreDir: dir, JetStreamMaxStore: 8 << 30, JetStreamMaxMemory: 1 << 30,
	})
	if err != nil {
		remove()
		return nil, fmt.Errorf("embedded nats-server: %w", err)
	}
	stop := func() {
		ns.Shutdown()
		ns.WaitForShutdown()
		remove()
	}
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		stop()
		return nil, fmt.Errorf("embedded nats-server is not ready after 10 s")
	}
	return &Server{URL: ns.ClientURL(), Version: server.VERSION, Origin: "embedded", stop: stop}, nil
}

func checkedNATS(ctx context.Context, s *Server) (*Server, error) {
	nc, err := natsgo.Connect(s.URL)
	if err == nil {
		defer nc.Close()
		s.Version = nc.ConnectedServerVersion()
		var js jetstream.JetStream
		if js, err = jetstream.New(nc); err == nil {
			_, err = js.AccountInfo(ctx)
		}
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("NATS at %s: %w", Redact(s.URL), err)
	}
	return s, nil
}
