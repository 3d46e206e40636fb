package pgxstore_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgxstore"
	"github.com/postrider/postrider/store/storetest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// withParam adds a parameter to a URL.
func withParam(tb testing.TB, dsn, name, value string) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// open opens a pool that is closed with the test.
func open(tb testing.TB, dsn string) *pgxpool.Pool {
	tb.Helper()
	// Many tests run at once on a server with a hundred connections.
	pool, err := pgxpool.New(tb.Context(), withParam(tb, dsn, "pool_max_conns", "8"))
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

func newStore(tb testing.TB, pool *pgxpool.Pool, opts *pgxstore.Options) *pgxstore.Store {
	tb.Helper()
	s, err := pgxstore.New(pool, opts)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	return s
}

// harness gives each subtest tables of its own, in a schema of the database.
func harness(t *testing.T, dsn string) storetest.Harness[pgx.Tx] {
	return storetest.Harness[pgx.Tx]{
		New: func(tb testing.TB) storetest.Instance[pgx.Tx] {
			opts := &pgxstore.Options{Schema: testenv.Name("conf_")}
			pool := open(tb, dsn)
			s := newStore(tb, pool, opts)
			if err := s.Migrate(tb.Context()); err != nil {
				tb.Fatalf("Migrate: %v", err)
			}
			begin := pgxstore.Begin(pool, nil)
			return storetest.Instance[pgx.Tx]{
				Store: s, Enlister: s, Migrate: s.Migrate,
				Begin:    begin.Begin,
				Commit:   begin.Commit,
				Rollback: begin.Rollback,
				Corrupt: func(ctx context.Context, id outbox.ID) error {
					changed := int64(0)
					for _, table := range []string{"outbox", "deferred", "dead"} {
						tag, err := pool.Exec(ctx, fmt.Sprintf(`UPDATE "%s"."postrider_%s" SET headers = '\x09ff'::bytea WHERE id = $1::uuid`, opts.Schema, table),
							pgx.QueryExecModeSimpleProtocol, id.String())
						if err != nil {
							return err
						}
						changed += tag.RowsAffected()
					}
					if changed != 1 {
						return fmt.Errorf("%d rows have the id %s", changed, id)
					}
					return nil
				},
				Open: func(tb testing.TB, zone string) outbox.Store {
					dsn := dsn
					if zone != "" {
						dsn = withParam(tb, dsn, "timezone", zone)
					}
					return newStore(tb, open(tb, dsn), opts)
				},
				NotTx: []any{pool},
			}
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(t, testenv.Postgres(t)))
}

func TestModel(t *testing.T) {
	t.Parallel()
	storetest.Model(t, harness(t, testenv.Postgres(t)), &storetest.ModelOptions{Rounds: 6, Ops: 250})
}

// TestModes runs with the other ways in which pgx can send arguments, two of
// which go through all rules behind a pooler.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dsn := withParam(t, testenv.Postgres(t), "default_query_exec_mode", mode)
			storetest.Model(t, harness(t, dsn), &storetest.ModelOptions{Rounds: 2, Ops: 250})
		})
	}
}
