package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/health"
)

// serveHealth listens at the address of the settings until end is called;
// without one it does nothing.
func serveHealth(ctx context.Context, s *settings, st *app.Store, log *slog.Logger) (end func(), err error) {
	if s.health == "" {
		return func() {}, nil
	}
	host, port, err := net.SplitHostPort(s.health)
	if err != nil {
		return nil, usagef("health is %q: use host:port, or :port for this machine alone", s.health)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	var outboxes health.Registry
	err = outboxes.Add("outbox", st, &health.Thresholds{UnhealthyCount: int64(s.healthCount), UnhealthyAge: s.healthAge})
	if err != nil {
		return nil, &usageError{err}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, usagef("health: %w", err)
	}
	srv := &http.Server{
		Handler: health.NewHandler(&outboxes, &health.HandlerOptions{OnError: func(r health.Result) {
			log.Warn("health check failed", "reason", r.Reason, "error", r.Err)
		}}),
		ReadTimeout:    5 * time.Second,
		WriteTimeout:   15 * time.Second,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: 8 << 10,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("health is not served any more", "error", err)
		}
	}()
	log.Info("health is served", "live", "http://"+l.Addr().String()+"/live", "ready", "http://"+l.Addr().String()+"/ready")
	return func() {
		srv.Close()
		<-done
	}, nil
}
