package relay_test

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgxstore"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport"
)

// statements counts those that a store sends.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	s.n.Add(int64(d.Batch.Len()))
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// sink accepts everything at once and says when it has had enough.
type sink struct {
	left   atomic.Int64
	enough func()
}

func (s *sink) Send(_ context.Context, ds []*transport.Delivery) {
	for _, d := range ds {
		d.Report(transport.Accepted, nil)
	}
	if s.left.Add(-int64(len(ds))) == 0 {
		s.enough()
	}
}

func (s *sink) PipelinesKeys() bool { return true }

// TestDrainCosts: what a message costs the database and this process on its way
// through a relay, in counts that a slow machine does not change. It runs alone:
// allocations are the process's.
func TestDrainCosts(t *testing.T) {
	const messages, batch = 50_000, 500
	c := testenv.PrivatePostgres(t)
	admin := openSQL(t, c.URL)
	for _, set := range []string{
		// Neither a vacuum nor the image of a page belongs to a message.
		"autovacuum = off", "full_page_writes = off", "checkpoint_timeout = '1h'",
	} {
		execute(t, admin, "ALTER SYSTEM SET "+set)
	}
	execute(t, admin, "SELECT pg_reload_conf()")

	for _, tc := range []struct {
		name string
		open func(t *testing.T, cfg *pgx.ConnConfig) (relayStore, func())
		// Allocations by message, as measured with -race and a sixth more.
		allocs float64
	}{
		{"sqlstore", func(t *testing.T, cfg *pgx.ConnConfig) (relayStore, func()) {
			db := stdlib.OpenDB(*cfg)
			s, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s, func() { db.Close() }
		}, 34},
		{"pgxstore", func(t *testing.T, cfg *pgx.ConnConfig) (relayStore, func()) {
			pc, err := pgxpool.ParseConfig(cfg.ConnString() + "&pool_max_conns=8")
			if err != nil {
				t.Fatal(err)
			}
			pc.ConnConfig.Tracer = cfg.Tracer
			pool, err := pgxpool.NewWithConfig(t.Context(), pc)
			if err != nil {
				t.Fatal(err)
			}
			s, err := pgxstore.New(pool, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s, pool.Close
		}, 3.6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			execute(t, admin, "CREATE DATABASE "+tc.name)
			cfg, err := pgx.ParseConfig(c.Database(tc.name))
			if err != nil {
				t.Fatal(err)
			}
			sent := &statements{}
			cfg.Tracer = sent
			look := openSQL(t, c.Database(tc.name))
			fill(t, look, messages)
			store, hang := tc.open(t, cfg)
			if err := store.Check(t.Context()); err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			out := &sink{enough: cancel}
			out.left.Store(messages)
			r, err := relay.New(store, map[string]transport.Transport{"default": out}, &relay.Options{Batch: batch})
			if err != nil {
				t.Fatal(err)
			}
			changed := changes(t, look)
			lsn := one[string](t, look, `SELECT pg_current_wal_insert_lsn()::text`)
			sent.n.Store(0)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := r.Run(ctx); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			statements := sent.n.Load()
			wal := one[int64](t, look, `SELECT (pg_current_wal_insert_lsn() - $1::pg_lsn)::bigint`, lsn)
			hang() // what ends tells the statistics what it did
			if n := one[int64](t, look, `SELECT count(*) FROM postrider_outbox`); n != 0 {
				t.Fatalf("%d rows are left", n)
			}
			for end := time.Now().Add(time.Minute); one[int64](t, look, `SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'postrider_outbox'`) < messages; {
				if time.Now().After(end) {
					t.Fatal("the statistics do not show the deletes")
				}
				time.Sleep(20 * time.Millisecond)
			}
			dead := changes(t, look) - changed

			for _, cost := range []struct {
				what       string
				got, limit float64
			}{
				{"statements", float64(statements) / messages, 0.01 + 60.0/messages}, // with those that start and stop a relay
				{"bytes of WAL", float64(wal) / messages, 80},
				{"dead tuples", float64(dead) / messages, 1 + 1400.0/messages}, // of 24 lanes: leases, and marks, more of them in a slow drain
				{"allocations", float64(after.Mallocs-before.Mallocs) / messages, tc.allocs},
			} {
				t.Logf("%.4f %s a message, limit %.4f", cost.got, cost.what, cost.limit)
				if cost.got > cost.limit {
					t.Errorf("a message costs %.4f %s, limit %.4f", cost.got, cost.what, cost.limit)
				}
			}
		})
	}
}

// relayStore is what a relay and this test need of a store.
type relayStore interface {
	outbox.Store
	Check(ctx context.Context) error
}

// fill writes messages of 1 KiB, half of them with one of a thousand keys.
func fill(t *testing.T, db *sql.DB, messages int) {
	t.Helper()
	s, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 1024)
	for at := 0; at < messages; at += 1000 {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		recs := make([]outbox.Record, min(1000, messages-at))
		for i := range recs {
			recs[i] = outbox.Record{
				ID: outbox.NewID(), Transport: "default", Type: "test.made.v1", CreatedAt: time.Now(),
				Message: outbox.Message{Destination: "test", Body: body, Event: outbox.Event{Source: "/test"}},
			}
			if i%2 == 0 {
				recs[i].Message.Key = fmt.Append(nil, "k", i)
			}
		}
		if err := s.Enlist(t.Context(), tx, recs...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// changes counts the tuples that updates and deletes have made dead, of whatever
// became of them.
func changes(t *testing.T, db *sql.DB) int64 {
	return one[int64](t, db, `SELECT sum(n_tup_upd + n_tup_del)::bigint FROM pg_stat_user_tables`)
}

func openSQL(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// one is the one value of a query.
func one[T any](t *testing.T, db *sql.DB, text string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), text, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}
