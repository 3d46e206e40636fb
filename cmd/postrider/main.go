// Command postrider runs, migrates and inspects outboxes, for services in any
// language: `postrider --help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	// A terminal that is closed is no reason to leave lanes behind; nohup is one to go on.
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	// The first signal stops cleanly, a later one kills. Not one that comes at
	// once: supervisors signal a process and then its group.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	os.Exit(Run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Environ()))
}
