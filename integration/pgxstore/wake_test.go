package pgxstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgxstore"
)

// listening runs Listen until the test ends; what it says comes on the channels.
func listening(t *testing.T, s *pgxstore.Store) (woken <-chan struct{}, trouble <-chan error) {
	t.Helper()
	wakes, troubles := make(chan struct{}, 1000), make(chan error, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Listen(ctx, func() { wakes <- struct{}{} }, &pgxstore.ListenOptions{Ping: time.Second, Trouble: func(err error) { troubles <- err }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Listen: %v", err)
		}
	})
	return wakes, troubles
}

func notifying(t *testing.T, s *pgxstore.Store) *pgxstore.Notifier {
	t.Helper()
	n := s.Notifier()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx, func(err error) { t.Errorf("notify: %v", err) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return n
}

func wait[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s did not come", what)
	}
	return v
}

// TestWake: who listens is woken at once for what was there, after each commit
// of another process, and again after a connection that was lost.
func TestWake(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	ctx := t.Context()
	relay := newStore(t, open(t, dsn), nil)
	if err := relay.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	woken, trouble := listening(t, relay)
	wait(t, "the scan after the subscription", woken)

	// The producer names the schema, the relay finds it by its search path.
	producer := newStore(t, open(t, dsn), &pgxstore.Options{Schema: "public"})
	n := notifying(t, producer)
	n.Committed()
	wait(t, "the notification", woken)

	admin := open(t, dsn)
	var ended int
	err := admin.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'postrider listen'`).Scan(&ended)
	if err != nil || ended != 1 {
		t.Fatalf("listening connections: %d, %v, want 1", ended, err)
	}
	if err := wait(t, "the report of the loss", trouble); err == nil {
		t.Error("a loss without an error")
	}
	wait(t, "the scan after the loss", woken)
	n.Committed()
	wait(t, "the notification after the loss", woken)

	// Silence is no loss: the line is asked, and answers.
	time.Sleep(2500 * time.Millisecond)
	n.Committed()
	wait(t, "the notification after a silence", woken)
	select {
	case err := <-trouble:
		t.Errorf("a silent connection was given up: %v", err)
	default:
	}
}

// TestNotificationsAreFew: a thousand commits are not a thousand notifications,
// and the last one is never swallowed.
func TestNotificationsAreFew(t *testing.T) {
	t.Parallel()
	s := newStore(t, open(t, testenv.Postgres(t)), nil)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	woken, _ := listening(t, s)
	wait(t, "the first scan", woken)
	n := notifying(t, s)
	began := time.Now()
	for range 1000 {
		n.Committed()
		time.Sleep(20 * time.Microsecond)
	}
	limit := int(time.Since(began)/(5*time.Millisecond)) + 3
	wait(t, "a notification", woken)
	time.Sleep(300 * time.Millisecond) // for more of them than there may be
	if got := 1 + len(woken); got > limit {
		t.Errorf("1,000 commits woke %d times, limit %d", got, limit)
	}
}

type made struct{ N int }

// TestUnitOfWorkNotifies: the hook of the unit of work is the notifier's, after
// the commit.
func TestUnitOfWorkNotifies(t *testing.T) {
	t.Parallel()
	pool := open(t, testenv.Postgres(t))
	s := newStore(t, pool, nil)
	ctx := t.Context()
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	seen := make(chan int64, 100)
	first := atomic.Bool{}
	listen, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.Listen(listen, func() {
		if first.Swap(true) {
			n, err := s.PendingCount(ctx, time.Now())
			if err == nil {
				seen <- n
			}
			return
		}
		seen <- -1
	}, nil)
	wait(t, "the first scan", seen)
	types := outbox.NewTypes()
	if err := outbox.Register(types, "test.made", 1, outbox.JSON[made]()); err != nil {
		t.Fatal(err)
	}
	box, err := outbox.New(s, &outbox.Options{Types: types, Transport: "default", Source: "/test"})
	if err != nil {
		t.Fatal(err)
	}
	unit, err := outbox.NewUnitOfWork(box, pgxstore.Begin(pool, nil), &outbox.UnitOptions{Committed: notifying(t, s).Committed})
	if err != nil {
		t.Fatal(err)
	}
	err = unit.Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := unit.Publish(ctx, outbox.Publication{Value: made{1}, Message: outbox.Message{Destination: "d"}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := wait(t, "the notification", seen); n != 1 {
		t.Errorf("woken to %d messages, want 1", n)
	}
}

func TestListenArguments(t *testing.T) {
	t.Parallel()
	s := newStore(t, open(t, testenv.Postgres(t)), nil)
	for name, err := range map[string]error{
		"no wake":      s.Listen(t.Context(), nil, nil),
		"a hasty ping": s.Listen(t.Context(), func() {}, &pgxstore.ListenOptions{Ping: time.Millisecond}),
	} {
		if !errors.Is(err, outbox.ErrInvalidArgument) {
			t.Errorf("%s: got %v, want outbox.ErrInvalidArgument", name, err)
		}
	}
	// Without tables there is nothing to listen to: it says so and tries again.
	woken, trouble := listening(t, s)
	if err := wait(t, "the report of missing tables", trouble); !errors.Is(err, outbox.ErrSchema) {
		t.Errorf("got %v, want outbox.ErrSchema", err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, "the first scan", woken)
}
