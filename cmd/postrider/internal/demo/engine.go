package demo

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx
	_ "modernc.org/sqlite"             // driver sqlite

	"github.com/postrider/postrider/store/sqlstore"
)

// engine says where one of the demo's two databases is. It travels to the
// child processes.
type engine struct {
	Postgres bool   `json:"postgres"`
	DSN      string `json:"dsn"`
	Schema   string `json:"schema,omitempty"` // PostgreSQL only
}

// sqliteFile is an engine over a file. A transaction may hold the one write
// lock for 500 ms, several in a row for longer: others wait.
func sqliteFile(path string) engine {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	return engine{DSN: u.String() + "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(15000)&_txlock=immediate"}
}

// open opens a pool of at most conns connections; 0 is no limit.
func (e engine) open(conns int) (*sql.DB, error) {
	driver := "sqlite"
	if e.Postgres {
		driver = "pgx"
	}
	db, err := sql.Open(driver, e.DSN)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", e, err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(max(conns, 4))
	return db, nil
}

// store is the outbox and inbox store over db.
func (e engine) store(db *sql.DB) (*sqlstore.Store, error) {
	if e.Postgres {
		return sqlstore.New(db, sqlstore.PostgreSQL, &sqlstore.Options{Schema: e.Schema})
	}
	return sqlstore.New(db, sqlstore.SQLite, nil)
}

// text completes a statement: {name} becomes the table's full name, ? the
// engine's parameter.
func (e engine) text(q string) string {
	var b strings.Builder
	n := 0
	for _, r := range q {
		switch {
		case r == '{' && e.Postgres:
			b.WriteString(`"` + e.Schema + `".`)
		case r == '{' || r == '}':
		case r == '?' && e.Postgres:
			n++
			b.WriteString("$" + strconv.Itoa(n))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// String names the database without its password.
func (e engine) String() string {
	if !e.Postgres {
		path, _, _ := strings.Cut(strings.TrimPrefix(e.DSN, "file:"), "?")
		return "SQLite " + path
	}
	return fmt.Sprintf("PostgreSQL %s, schema %s", redact(e.DSN), e.Schema)
}

// tables creates tables, with the schema before them on PostgreSQL.
func (e engine) tables(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, q := range statements {
		if _, err := db.ExecContext(ctx, e.text(q)); err != nil {
			return fmt.Errorf("create a table in %s: %w", e, err)
		}
	}
	return nil
}

// connectTimeout bounds how long a server may take to answer at the start.
const connectTimeout = 10 * time.Second

// createSchemas checks the database behind url and makes the schemas of both
// engines. What it made is undone by the returned function.
func createSchemas(ctx context.Context, url string, schemas ...string) (drop func(ctx context.Context, keep bool) error, err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, usage("--db is %s: %w: use a URL such as postgres://user@host:5432/database", redact(url), err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		return nil, usage("--db is %s: cannot connect: %w: check that the server runs and that the URL is right", redact(url), err)
	}
	var user, database string
	var may bool
	err = db.QueryRowContext(ctx, `SELECT current_user, current_database(), has_database_privilege(current_database(), 'CREATE')`).Scan(&user, &database, &may)
	if err != nil {
		db.Close()
		return nil, usage("--db is %s: %w: the demo needs a PostgreSQL database", redact(url), err)
	}
	if !may {
		db.Close()
		return nil, usage("--db is %s: user %s may not create the schema the demo works in: GRANT CREATE ON DATABASE %q TO %q, or use another user", redact(url), user, database, user)
	}
	drop = func(ctx context.Context, keep bool) error {
		defer db.Close()
		if keep {
			return nil
		}
		for _, s := range schemas {
			if _, err := db.ExecContext(ctx, `DROP SCHEMA IF EXISTS "`+s+`" CASCADE`); err != nil {
				return fmt.Errorf("drop schema %s of %s: %w", s, redact(url), err)
			}
		}
		return nil
	}
	for _, s := range schemas {
		if _, err := db.ExecContext(ctx, `CREATE SCHEMA "`+s+`"`); err != nil {
			drop(context.WithoutCancel(ctx), false)
			return nil, fmt.Errorf("create schema %s in %s: %w", s, redact(url), err)
		}
	}
	return drop, nil
}

// count runs a query that returns one number.
func count(ctx context.Context, db *sql.DB, q string) (n int64, err error) {
	if err := db.QueryRowContext(ctx, q).Scan(&n); err != nil {
		return 0, fmt.Errorf("%s: %w", q, err)
	}
	return n, nil
}
