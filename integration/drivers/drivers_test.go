// Package drivers_test runs the conformance suite over drivers that are not those
// of the other suites: lib/pq and, with cgo, mattn/go-sqlite3.
package drivers_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	_ "github.com/lib/pq"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/store/storetest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type driver struct {
	name     string
	dialect  *sqlstore.Dialect
	dsn      func(tb testing.TB) string
	timeZone func(dsn, zone string) string
	corrupt  string // a statement with a table's name and a parameter, the id
	id       func(outbox.ID) any
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, d := range drivers {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, harness(d))
		})
	}
}

// TestErrorsAreTold: what an error means is told from the driver's own, whose types the
// store does not know. A relay depends on it: a settle that was refused is the
// business of its row, any other error one of the database.
func TestErrorsAreTold(t *testing.T) {
	t.Parallel()
	refuse := map[*sqlstore.Dialect]string{
		sqlstore.PostgreSQL: `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
			CREATE TRIGGER refuse BEFORE DELETE ON postrider_outbox FOR EACH ROW EXECUTE FUNCTION refuse()`,
		sqlstore.SQLite: `CREATE TRIGGER refuse BEFORE DELETE ON postrider_outbox BEGIN SELECT RAISE(ABORT, 'not this one'); END`,
	}
	for _, d := range drivers {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(d.name, d.dsn(t))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			s, err := sqlstore.New(db, d.dialect, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.PendingCount(t.Context(), time.Now()); !errors.Is(err, outbox.ErrSchema) {
				t.Errorf("without tables: got %v, want outbox.ErrSchema", err)
			}
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), refuse[d.dialect]); err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			r := outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: time.Now(),
				Message: outbox.Message{Destination: "d", Key: []byte("k"), Event: outbox.Event{Source: "/t"}}}
			if err := errors.Join(s.Enlist(t.Context(), tx, r), tx.Commit()); err != nil {
				t.Fatal(err)
			}
			owner := outbox.NewID()
			g, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 100, TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, r.ID, r.Message.Key)
			rows := make([]outbox.LaneRow, 8)
			if n, err := s.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: lane}}, rows); err != nil || n != 1 {
				t.Fatalf("read: got %d, %v, want 1", n, err)
			}
			_, err = s.SettleLanes(t.Context(), outbox.SettleRequest{Owner: owner, Settlements: []outbox.Settlement{
				{Lane: lane, Epoch: g.Leases[lane-1].Epoch, Pos: rows[0].Pos, ID: r.ID, Outcome: outbox.SettleAccepted, Hint: rows[0].Hint},
			}})
			if !errors.Is(err, outbox.ErrRefused) {
				t.Errorf("a settle that a trigger refuses: got %v, want outbox.ErrRefused", err)
			}
		})
	}
}

func harness(d driver) storetest.Harness[sqlstore.Tx] {
	return storetest.Harness[sqlstore.Tx]{
		SingleWriter: d.dialect == sqlstore.SQLite,
		New: func(tb testing.TB) storetest.Instance[sqlstore.Tx] {
			dsn := d.dsn(tb)
			open := func(tb testing.TB, dsn string) (*sql.DB, *sqlstore.Store) {
				db, err := sql.Open(d.name, dsn)
				if err != nil {
					tb.Fatal(err)
				}
				tb.Cleanup(func() { db.Close() })
				db.SetMaxOpenConns(8)
				s, err := sqlstore.New(db, d.dialect, nil)
				if err != nil {
					tb.Fatal(err)
				}
				return db, s
			}
			db, s := open(tb, dsn)
			if err := s.Migrate(tb.Context()); err != nil {
				tb.Fatalf("Migrate: %v", err)
			}
			begin := sqlstore.Begin(db, nil)
			return storetest.Instance[sqlstore.Tx]{
				Store: s, Enlister: s, Begin: begin.Begin, Commit: begin.Commit, Rollback: begin.Rollback, Migrate: s.Migrate,
				Corrupt: func(ctx context.Context, id outbox.ID) error {
					for _, table := range []string{"outbox", "deferred", "dead"} {
						if _, err := db.ExecContext(ctx, fmt.Sprintf(d.corrupt, table), d.id(id)); err != nil {
							return err
						}
					}
					return nil
				},
				Open: func(tb testing.TB, zone string) outbox.Store {
					dsn := dsn
					if zone != "" {
						dsn = d.timeZone(dsn, zone)
					}
					_, s := open(tb, dsn)
					return s
				},
				NotTx: []any{db},
			}
		},
	}
}

var drivers = []driver{
	{
		name: "postgres", dialect: sqlstore.PostgreSQL, dsn: testenv.Postgres, // lib/pq's name
		timeZone: func(dsn, zone string) string { return dsn + "&timezone=" + url.QueryEscape(zone) },
		corrupt:  `UPDATE postrider_%s SET headers = '\x09ff'::bytea WHERE id = $1::uuid`,
		id:       func(id outbox.ID) any { return id.String() },
	},
}
