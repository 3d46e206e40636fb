package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// engine is a database family that the store is tested on.
type engine struct {
	name    string
	dialect *sqlstore.Dialect
	driver  string
	dsn     func(tb testing.TB) string
	// timeZone changes a DSN so that its sessions live in that zone.
	timeZone func(dsn, zone string) string
	single   bool // one writer at a time
	// schemas are not where tests part: each takes a database of its own.
	databases bool
	// isolation of the transactions that producers begin.
	isolation sql.IsolationLevel
}

// The databases of sqlstore, and PostgreSQL with pgxstore.
var (
	postgres = engine{
		name: "postgres", dialect: sqlstore.PostgreSQL, driver: "pgx", dsn: testenv.Postgres,
		timeZone: func(dsn, zone string) string { return withParam(dsn, "timezone", zone) },
	}
	sqlite = engine{
		name: "sqlite", dialect: sqlstore.SQLite, driver: "sqlite", dsn: testenv.SQLite, single: true, databases: true,
		timeZone: func(dsn, _ string) string { return dsn },
	}
	mysql = engine{
		name: "mysql", dialect: sqlstore.MySQL, driver: "mysql", dsn: testenv.MySQL, databases: true,
		timeZone: func(dsn, zone string) string {
			// A server may lack the names of zones; MariaDB's offsets end at 13 hours.
			_, offset := time.Now().In(must(time.LoadLocation(zone))).Zone()
			offset = min(offset, 13*3600)
			sign := '+'
			if offset < 0 {
				sign, offset = '-', -offset
			}
			return withSetting(dsn, "time_zone", fmt.Sprintf("'%c%02d:%02d'", sign, offset/3600, offset/60%60))
		},
	}
	// Where it is, for there is none to start. The tests' own statements are in its words
	// where they went through engine.sql: it has the suites, limits and locks.
	oracle = engine{
		name: "oracle", dialect: sqlstore.Oracle, driver: "oracle", dsn: testenv.Oracle, databases: true,
		timeZone: func(dsn, _ string) string { return dsn },
	}
	// As with Oracle.
	sqlserver = engine{
		name: "sqlserver", dialect: sqlstore.SQLServer, driver: "sqlserver", dsn: testenv.SQLServer,
		timeZone: func(dsn, _ string) string { return dsn },
	}
	native = engine{
		name: "pgxstore", dialect: sqlstore.PostgreSQL, driver: stores.Native, dsn: testenv.Postgres,
		timeZone: func(dsn, zone string) string { return withParam(dsn, "timezone", zone) },
	}
)

// withParam adds a parameter to a URL.
func withParam(dsn, name, value string) string {
	u := must(url.Parse(dsn))
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// withSetting adds a parameter to a DSN of MySQL's driver: one of its own, or a
// variable of the session.
func withSetting(dsn, name, value string) string {
	sep := "?"
	if strings.Contains(dsn, "?") {
		sep = "&"
	}
	return dsn + sep + name + "=" + url.QueryEscape(value)
}

// onEngines runs fn once per engine, in parallel.
func onEngines(t *testing.T, fn func(t *testing.T, e engine)) {
	on(t, fn, postgres, sqlite, mysql, native)
}

// onAll runs it on those that are not started as well, where they are.
func onAll(t *testing.T, fn func(t *testing.T, e engine)) {
	on(t, fn, postgres, sqlite, mysql, native, oracle, sqlserver)
}

// onSQL runs it on those of database/sql.
func onSQL(t *testing.T, fn func(t *testing.T, e engine)) { on(t, fn, postgres, sqlite, mysql) }

// onServers runs it where several connections can write at once.
func onServers(t *testing.T, fn func(t *testing.T, e engine)) { on(t, fn, postgres, mysql, native) }

// onPostgres runs it with both stores of PostgreSQL: what it is about is
// PostgreSQL's alone.
func onPostgres(t *testing.T, fn func(t *testing.T, e engine)) { on(t, fn, postgres, native) }

func on(t *testing.T, fn func(t *testing.T, e engine), engines ...engine) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			fn(t, e)
		})
	}
}

// open opens a pool that is closed with the test.
func (e engine) open(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	// Many tests run at once on a server with a hundred connections.
	if e.driver == stores.Native && must(url.Parse(dsn)).Query().Get("pool_max_conns") == "" {
		dsn = withParam(dsn, "pool_max_conns", "8")
	}
	db := stores.Open(tb, e.driver, dsn)
	db.SetMaxOpenConns(8)
	return db
}

// openOne opens a pool of one connection.
func (e engine) openOne(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	if e.driver == stores.Native {
		dsn = withParam(dsn, "pool_max_conns", "1")
	}
	db := e.open(tb, dsn)
	db.SetMaxOpenConns(1)
	return db
}

// database is a new database without tables.
func (e engine) database(tb testing.TB) (*sql.DB, string) {
	tb.Helper()
	dsn := e.dsn(tb)
	return e.open(tb, dsn), dsn
}

// sql is text as the engine takes it, whose arguments $1, $2, ... stand in that
// order.
func (e engine) sql(text string) string {
	switch e.dialect {
	case sqlstore.PostgreSQL:
		return text
	case sqlstore.Oracle:
		return argument.ReplaceAllString(table.ReplaceAllString(text, `"$0"`), ":$1")
	case sqlstore.SQLServer:
		return argument.ReplaceAllString(text, "@p$1")
	}
	return argument.ReplaceAllString(text, "?")
}

var (
	argument = regexp.MustCompile(`\$(\d+)`)
	table    = regexp.MustCompile(`\bpostrider_\w+`)
)

func TestStatementsInTheWordsOfEngines(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		e    engine
		want string
	}{
		{postgres, `UPDATE postrider_lanes SET owner = $1, epoch = $2`},
		{mysql, `UPDATE postrider_lanes SET owner = ?, epoch = ?`},
		{oracle, `UPDATE "postrider_lanes" SET owner = :1, epoch = :2`},
		{sqlserver, `UPDATE postrider_lanes SET owner = @p1, epoch = @p2`},
	} {
		if got := tc.e.sql(postgres.sql(`UPDATE postrider_lanes SET owner = $1, epoch = $2`)); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.e.name, got, tc.want)
		}
	}
}

// id is an id as an argument.
func (e engine) id(id outbox.ID) any {
	if e.dialect == sqlstore.PostgreSQL {
		return id.String()
	}
	return id[:]
}

func (e engine) store(tb testing.TB, db *sql.DB, opts *sqlstore.Options) stores.Store {
	tb.Helper()
	s, err := stores.New(db, e.dialect, opts)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	return s
}

// migrated is a store over new, empty tables.
func (e engine) migrated(tb testing.TB, opts *sqlstore.Options) (stores.Store, *sql.DB, string) {
	tb.Helper()
	db, dsn := e.database(tb)
	s := e.store(tb, db, opts)
	if err := s.Migrate(tb.Context()); err != nil {
		tb.Fatalf("Migrate: %v", err)
	}
	return s, db, dsn
}

// enlist commits the records in a transaction of their own.
func enlist(tb testing.TB, s stores.Store, db *sql.DB, recs ...outbox.Record) {
	tb.Helper()
	if err := tryEnlist(tb.Context(), s, db, recs...); err != nil {
		tb.Fatalf("enlist %d records: %v", len(recs), err)
	}
}

func tryEnlist(ctx context.Context, s stores.Store, db *sql.DB, recs ...outbox.Record) error {
	return stores.Enlist(ctx, db, s, recs...)
}

// exec runs a statement that must succeed.
func exec(tb testing.TB, db *sql.DB, text string, args ...any) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), text, args...); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
}

// number is the one number that a query returns.
func number(tb testing.TB, db *sql.DB, text string, args ...any) (n int64) {
	tb.Helper()
	if err := db.QueryRowContext(tb.Context(), text, args...).Scan(&n); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return n
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprint("unexpected: ", err))
	}
	return v
}

// record is a message of 1 KiB; key "" is none.
func record(key string) outbox.Record {
	r := outbox.Record{
		ID: outbox.NewID(), Transport: "default", Type: "test.v1", CreatedAt: time.Now(),
		Message: outbox.Message{Destination: "d", Body: make([]byte, 1024), Event: outbox.Event{Source: "/test"}},
	}
	if key != "" {
		r.Message.Key = []byte(key)
	}
	return r
}
