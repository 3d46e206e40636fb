package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/transport"
)

// fileLook is how often the relay looks whether an SQLite file is still the one it opened.
const fileLook = time.Second

type runCmd struct {
	storeFlags
	relayFlags
}

// Run relays until the program's context ends.
func (*runCmd) Run(p *program) error {
	s, err := p.settings()
	if err != nil {
		return err
	}
	log, err := p.logger(s)
	if err != nil {
		return err
	}
	if _, err := s.policy(); err != nil {
		return err
	}
	if s.health == "" && (s.healthCount > 0 || s.healthAge > 0) {
		return usagef("health_count or health_age is set and health is not: they are limits of the page /ready, which --health HOST:PORT serves")
	}
	if s.db == "" {
		return notSet("db")
	}
	if s.nats == "" {
		return notSet("nats")
	}
	if _, err := app.ParseNATS(s.nats); err != nil {
		return usagef("nats: %w", err)
	}
	return p.deliver(s, log)
}

// deliver connects and relays.
func (p *program) deliver(s *settings, log *slog.Logger) (err error) {
	starting := true
	defer func() {
		if err != nil && starting && p.ctx.Err() != nil {
			log.Info("stopped before the relay had started")
			err = nil
		}
	}()
	st, err := p.openStore(s, s.migrate)
	if err != nil {
		return err
	}
	defer st.Close()
	broker, err := app.OpenNATS(p.ctx, s.nats, &app.NATSOptions{Stream: s.stream, Credentials: s.natsCreds, Log: log})
	if err != nil {
		return err
	}
	defer broker.Close()

	names := []string{"default"}
	if len(s.routes) > 0 {
		names = routeNames(s.routes)
	}
	// Before the tables are touched: a wrong setting changes nothing.
	if _, err := s.relay(st, broker, names, log); err != nil {
		return err
	}
	if s.migrate {
		if err := st.Migrate(p.ctx); err != nil {
			return err
		}
	}
	// A connection whose other end has vanished never answers: to fail lets
	// whoever started the program try again.
	check, cancel := context.WithTimeout(p.ctx, 15*time.Second)
	defer cancel()
	if err := st.Check(check); err != nil {
		return err
	}
	// What a relay lacks it would lack at every try.
	if err := st.CheckRelay(check); err != nil {
		return err
	}
	if len(s.routes) == 0 {
		routes, err := st.Routes(check)
		if err != nil {
			return err
		}
		names = routeNames(routes)
	}
	r, err := s.relay(st, broker, names, log)
	if err != nil {
		return err
	}
	endHealth, err := serveHealth(p.ctx, s, st, log)
	if err != nil {
		return err
	}
	defer endHealth()
	starting = false
	log.Info("relay started", "db", st.Database.Name, "broker", broker.Name, "routes", strings.Join(names, ","))
	started := time.Now()
	ctx, stop := context.WithCancel(p.ctx)
	defer stop()
	var gone error
	watched := make(chan struct{})
	go func() { // or the relay would hold its lanes and deliver nothing
		defer close(watched)
		defer stop()
		look := time.NewTicker(fileLook)
		defer look.Stop()
		for gone == nil {
			select {
			case <-broker.Closed():
				return
			case <-ctx.Done():
				return
			case <-look.C:
				gone = st.Gone()
			}
		}
	}()
	defer st.Listen(ctx, r.Wake, func(err error) {
		if err != nil {
			log.Warn("commits are found by polling alone", "error", err)
		} else {
			log.Info("commits are announced again")
		}
	})()
	err = r.Run(ctx)
	stop()
	if <-watched; gone == nil && err != nil {
		gone = st.Gone()
	}
	if gone != nil { // whatever else failed came of it, such as that a new file has no tables
		err = fmt.Errorf("%w, start again", gone)
	}
	if p.ctx.Err() == nil && broker.Conn.IsClosed() {
		err = errors.Join(fmt.Errorf("the connection to NATS at %s has ended for good, start again", broker.Name), broker.Conn.LastError(), err)
	}
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	log.Info("relay stopped cleanly", "after", time.Since(started).Round(time.Millisecond))
	return nil
}

func routeNames(routes []outbox.Route) (names []string) {
	for _, r := range routes {
		names = append(names, r.Name)
	}
	return names
}

// policy is the setting poison.
func (s *settings) policy() (relay.Poison, error) {
	switch s.poison {
	case "", "dead-letter":
		return relay.DeadLetter, nil
	case "park":
		return relay.ParkKey, nil
	}
	return 0, usagef("poison is %q: use dead-letter or park", s.poison)
}

func (s *settings) relay(st *app.Store, broker *app.NATS, routes []string, log *slog.Logger) (*relay.Relay, error) {
	poison, err := s.policy()
	if err != nil {
		return nil, err
	}
	transports := map[string]transport.Transport{}
	for _, name := range routes {
		transports[name] = broker
	}
	h := hooks(log)
	say := h.Store
	h.Store = func(err error) {
		if err != nil {
			st.Reset()
		}
		say(err)
	}
	return relay.New(st, transports, &relay.Options{
		TTL: s.ttl, PollMin: min(s.poll, 5*time.Millisecond), PollMax: s.poll, Batch: s.batch, InFlight: s.inFlight,
		MaxAttempts: s.maxAttempts, Poison: poison, BackoffMin: s.backoffMin, BackoffMax: s.backoffMax,
		Grace: s.grace, RequireOrder: s.requireOrder, Hooks: h,
	})
}

// lanesLog gathers what happens to many lanes at once into one line.
type lanesLog struct {
	log *slog.Logger
	mu  sync.Mutex
	n   map[[3]string]int
}

func (l *lanesLog) add(what, route, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.n) == 0 {
		l.n = map[[3]string]int{}
		time.AfterFunc(100*time.Millisecond, l.flush)
	}
	l.n[[3]string{what, route, reason}]++
}

func (l *lanesLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, n := range l.n {
		l.log.Warn(k[0], "lanes", n, "route", k[1], "reason", k[2])
	}
	l.n = nil
}

// hooks log one line per change of state. Bodies, keys and headers are the
// users' business and stay out.
func hooks(log *slog.Logger) relay.Hooks {
	lanes := &lanesLog{log: log}
	return relay.Hooks{
		Store: func(err error) {
			if err != nil {
				log.Warn("database lost, will retry", "error", err)
			} else {
				log.Info("database is back")
			}
		},
		Route: func(route string, err error) {
			if err != nil {
				log.Warn("broker lost, route pauses", "route", route, "error", err)
			} else {
				log.Info("broker is back, route goes on", "route", route)
			}
		},
		Lanes: func(held []outbox.LaneLease) {
			count := map[string]int{}
			for _, l := range held {
				count[l.Route]++
			}
			args := []any{"total", len(held)}
			for route, n := range count {
				args = append(args, slog.Int(route, n))
			}
			log.Info("lanes held", args...)
		},
		Attempt: func(a relay.Attempt) {
			if a.Outcome != transport.Accepted {
				log.Debug("attempt failed", "id", a.Record.ID, "route", a.Record.Transport, "type", a.Record.Type,
					"outcome", a.Outcome, "attempts", a.Record.Attempts, "error", a.Err)
			}
		},
		Dead: func(route string, id outbox.ID, reason string) {
			log.Error("message is a dead letter", "id", id, "route", route, "reason", reason)
		},
		Parked: func(route string, _ []byte, id outbox.ID, reason string) {
			log.Error("message has parked its key", "id", id, "route", route, "reason", reason)
		},
		TakenOver: func(l outbox.LaneLease) {
			lanes.add("lanes taken over", l.Route, "the lease of another relay ran out, or it gave back what one that died had in hand")
		},
		Fenced: func(route string, id outbox.ID) {
			log.Warn("outcome came too late, the message is sent again", "id", id, "route", route)
		},
		LeaseLost: func(l outbox.LaneLease, reason string) {
			lanes.add("lanes lost", l.Route, reason)
		},
		Exhausted: func(route string, id outbox.ID, attempts int) {
			log.Warn("attempts spent, goes on slowly", "id", id, "route", route, "attempts", attempts)
		},
		Trouble: func(err error) { log.Error("relay trouble", "error", err) },
	}
}

func (p *program) logger(s *settings) (*slog.Logger, error) {
	var level slog.Level
	if s.logLevel != "" && (!slices.Contains([]string{"debug", "info", "warn", "error"}, s.logLevel) || level.UnmarshalText([]byte(s.logLevel)) != nil) {
		return nil, usagef("log_level is %q: use debug, info, warn or error", s.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(message(err))
		}
		return a
	}}
	switch s.logFormat {
	case "", "text":
		return slog.New(slog.NewTextHandler(p.stderr, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(p.stderr, opts)), nil
	}
	return nil, usagef("log_format is %q: use text or json", s.logFormat)
}
