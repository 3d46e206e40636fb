package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// Drivers by name only.
type (
	sqliteDriver struct{}
	pgxDriver    struct{}
	otherDriver  struct{}
)

var errNoServer = errors.New("no server")

func (sqliteDriver) Open(string) (driver.Conn, error) { return nil, errNoServer }
func (pgxDriver) Open(string) (driver.Conn, error)    { return nil, errNoServer }
func (otherDriver) Open(string) (driver.Conn, error)  { return nil, errNoServer }

type connector struct{ d driver.Driver }

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.d.Open("") }
func (c connector) Driver() driver.Driver                        { return c.d }

func TestNewChecksItsArguments(t *testing.T) {
	t.Parallel()
	pg, lite, other := sql.OpenDB(connector{pgxDriver{}}), sql.OpenDB(connector{sqliteDriver{}}), sql.OpenDB(connector{otherDriver{}})
	routes := func(rs ...outbox.Route) *Options { return &Options{Routes: rs} }
	for _, tc := range []struct {
		db   *sql.DB
		d    *Dialect
		opts *Options
		says string // "" = valid
	}{
		{pg, PostgreSQL, nil, ""},
		{lite, SQLite, nil, ""},
		{other, SQLite, nil, ""},
		{other, PostgreSQL, &Options{RelayDB: pg}, ""},
		{nil, PostgreSQL, nil, "*sql.DB is nil"},
		{pg, nil, nil, "dialect is nil"},
		{pg, SQLite, nil, "use sqlstore.PostgreSQL"},
		{lite, PostgreSQL, nil, "use sqlstore.SQLite"},
		{pg, PostgreSQL, &Options{RelayDB: lite}, "use sqlstore.SQLite"},
		{pg, PostgreSQL, &Options{MaxBytes: -1}, "MaxBytes -1"},
		{pg, PostgreSQL, routes(outbox.Route{}), "limit 1 to 255"},
		{pg, PostgreSQL, routes(outbox.Route{Name: strings.Repeat("r", 256)}), "256 bytes"},
		{pg, PostgreSQL, routes(outbox.Route{Name: "a\nb"}), "control"},
		{pg, PostgreSQL, routes(outbox.Route{Name: "\xff"}), "invalid character"},
		{pg, PostgreSQL, routes(outbox.Route{Name: "a"}, outbox.Route{Name: "a"}), "stands twice"},
		{pg, PostgreSQL, routes(outbox.Route{Name: "a", Ordered: 1025}), "1025 ordered"},
		{pg, PostgreSQL, routes(outbox.Route{Name: "a", Unordered: -1}), "-1 unordered"},
		{pg, PostgreSQL, routes(outbox.Route{Name: "a", Ordered: 1024, Unordered: 1024}), ""},
		{lite, SQLite, &Options{Schema: "main"}, "has no schemas"},
	} {
		_, err := New(tc.db, tc.d, tc.opts)
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%s with %+v: %v", tc.d, tc.opts, err)
		case tc.says != "" && (!errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("with %+v: got %v, want outbox.ErrInvalidArgument saying %q", tc.opts, err, tc.says)
		}
	}
}

func TestErrorsKeepTheDrivers(t *testing.T) {
	t.Parallel()
	s, err := New(sql.OpenDB(connector{pgxDriver{}}), PostgreSQL, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, acquire := s.AcquireLanes(ctx, outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"r"}, TTL: 1e9})
	for name, err := range map[string]error{"Check": s.Check(ctx), "Migrate": s.Migrate(ctx), "AcquireLanes": acquire} {
		if !errors.Is(err, errNoServer) || !strings.HasPrefix(err.Error(), "sqlstore: ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestNoTransaction: what would commit each statement alone is no Tx (E9).
func TestNoTransaction(t *testing.T) {
	t.Parallel()
	for _, v := range []any{(*sql.DB)(nil), (*sql.Conn)(nil), (*sql.Stmt)(nil)} {
		if _, ok := v.(Tx); ok {
			t.Errorf("%T passes as a transaction", v)
		}
	}
	if _, ok := any((*sql.Tx)(nil)).(Tx); !ok {
		t.Error("*sql.Tx does not pass as a transaction")
	}
}
