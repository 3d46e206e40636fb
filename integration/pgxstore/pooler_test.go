package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgxstore"
	"github.com/postrider/postrider/store/storetest"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/transporttest"
)

// TestThroughPgBouncer: behind a transaction pooler that knows no prepared
// statements everything works, whatever mode the pool has, and nobody finds the
// settings of another's session.
func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			through, _ := testenv.PgBouncer(t)
			dsn := withParam(t, through, "default_query_exec_mode", mode)
			storetest.Run(t, harness(t, dsn))
			storetest.Model(t, harness(t, dsn), &storetest.ModelOptions{Rounds: 1, Ops: 250})
		})
	}
}

// TestRelayThroughPgBouncer drains a backlog through the pooler, keyed and
// unkeyed, some of it poisonous, and looks for session state that stayed behind.
func TestRelayThroughPgBouncer(t *testing.T) {
	t.Parallel()
	through, direct := testenv.PgBouncer(t)
	ctx := t.Context()
	pool := open(t, withParam(t, through, "default_query_exec_mode", "exec")) // for our own statements
	s := newStore(t, open(t, through), nil)
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	poison := map[outbox.ID]bool{}
	var recs []outbox.Record
	for i := range 600 {
		key := ""
		if i%2 == 0 {
			key = fmt.Sprint("k", i%20)
		}
		r := record(key)
		if i%100 == 99 {
			poison[r.ID] = true
		}
		recs = append(recs, r)
	}
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.Enlist(ctx, tx, recs...) }); err != nil {
		t.Fatal(err)
	}
	rec := transporttest.NewRecorder(&transporttest.Options{Script: func(d *transport.Delivery, _ int) transporttest.Reply {
		if poison[d.Record.ID] {
			return transporttest.Reply{Outcome: transport.Permanent}
		}
		return transporttest.Reply{Outcome: transport.Accepted}
	}})
	r, err := relay.New(s, map[string]transport.Transport{"default": rec}, nil)
	if err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- r.Run(run) }()
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := rec.WaitAccepted(wait, len(recs)-len(poison)); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.Listen(wait, func() {}, nil); !errors.Is(err, pgxstore.ErrPooler) {
		t.Errorf("Listen: got %v, want pgxstore.ErrPooler", err)
	}
	if n, err := s.CountDead(ctx, ""); err != nil || n != int64(len(poison)) {
		t.Errorf("dead letters: %d, %v, want %d", n, err, len(poison))
	}
	for _, text := range rec.Violations() {
		t.Error(text)
	}
	admin := open(t, direct)
	var left, strange int
	if err := admin.QueryRow(ctx, `SELECT count(*) FROM postrider_outbox`).Scan(&left); err != nil || left != 0 {
		t.Errorf("rows left: %d, %v", left, err)
	}
	err = admin.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'postrider%'`).Scan(&strange)
	if err != nil || strange != 0 {
		t.Errorf("server connections with a session's settings: %d, %v", strange, err)
	}
}
