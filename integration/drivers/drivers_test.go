// Package drivers_test runs the conformance suite over drivers that are not those
// of the other suites: lib/pq and, with cgo, mattn/go-sqlite3.
package drivers_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"testing"

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
