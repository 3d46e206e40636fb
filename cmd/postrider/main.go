// Command postrider runs, migrates and inspects outboxes, for services in any
// language: `postrider --help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal stops cleanly; from then on a second one kills.
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Environ()))
}
