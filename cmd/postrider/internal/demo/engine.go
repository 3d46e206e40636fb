package demo

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
)

// engine says where one of the demo's two databases is. It travels to the
// child processes.
type engine struct {
	Kind   string `json:"kind"` // app.Postgres, app.MySQL or app.SQLite
	URL    string `json:"url"`
	Schema string `json:"schema,omitempty"` // of a server; a database on MySQL
}

// server tells that several connections can write at once.
func (e engine) server() bool { return e.Kind != app.SQLite }

// quoted is the name of a schema in a statement.
func (e engine) quoted(schema string) string {
	if e.Kind == app.MySQL {
		return "`" + schema + "`"
	}
	return `"` + schema + `"`
}

// sqliteFile is an engine over a file. A transaction may hold the one write
// lock for 500 ms, several in a row for longer: others wait.
func sqliteFile(path string) engine {
	return engine{Kind: app.SQLite, URL: "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(15000)"}
}

// open opens a pool of at most conns connections, and the store over it; 0 is
// what a relay needs.
func (e engine) open(ctx context.Context, conns int) (*app.Store, error) {
	return app.OpenStore(ctx, e.URL, &app.StoreOptions{Schema: e.Schema, Create: true, Conns: conns})
}

// text completes a statement: {name} becomes the table's full name, ? the
// engine's parameter.
func (e engine) text(q string) string {
	var b strings.Builder
	n := 0
	for _, r := range q {
		switch {
		case r == '{' && e.server():
			b.WriteString(e.quoted(e.Schema) + ".")
		case r == '{' || r == '}':
		case r == '?' && e.Kind == app.Postgres:
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
	d, err := app.ParseDatabase(e.URL)
	if err != nil || !e.server() {
		return d.Name
	}
	return d.Name + ", schema " + e.Schema
}

// tables creates tables.
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

// createSchemas checks the database behind url and makes schemas in it, or beside
// it on MySQL, where they are databases. The returned function closes the
// database, and drops them unless they are to be kept.
func createSchemas(ctx context.Context, e engine, schemas ...string) (end func(ctx context.Context, keep bool) error, err error) {
	s, err := app.OpenStore(ctx, e.URL, nil)
	if err != nil {
		return nil, usage("--db: %w", err)
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	checking, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	cascade := ""
	if e.Kind == app.Postgres {
		cascade = " CASCADE"
		if err := mayCreate(checking, s); err != nil {
			return nil, err
		}
	}
	drop := func(ctx context.Context) error {
		for _, name := range schemas {
			if _, err := s.DB.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+e.quoted(name)+cascade); err != nil {
				return fmt.Errorf("drop schema %s of %s: %w", name, s.Database.Name, err)
			}
		}
		return nil
	}
	for _, name := range schemas {
		if _, err := s.DB.ExecContext(checking, "CREATE SCHEMA "+e.quoted(name)); err != nil {
			tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
			defer cancel()
			drop(tidy)
			return nil, usage("--db: create schema %s in %s: %w: the demo makes and drops two of its own: use a user who may, or leave --db out for SQLite", name, s.Database.Name, err)
		}
	}
	return func(ctx context.Context, keep bool) error {
		defer s.Close()
		if keep {
			return nil
		}
		return drop(ctx)
	}, nil
}

// mayCreate says what PostgreSQL's refusal would not: who has to be given what.
func mayCreate(ctx context.Context, s *app.Store) error {
	var user, database string
	var may bool
	err := s.DB.QueryRowContext(ctx, `SELECT current_user, current_database(), has_database_privilege(current_database(), 'CREATE')`).Scan(&user, &database, &may)
	if err != nil {
		return usage("--db: ask %s for the rights of its user: %w", s.Database.Name, err)
	}
	if !may {
		return usage("--db: user %s may not create a schema in %s, and the demo needs two of its own: GRANT CREATE ON DATABASE %q TO %q, or use another user",
			user, s.Database.Name, database, user)
	}
	return nil
}

// count runs a query that returns one number.
func count(ctx context.Context, db *sql.DB, q string) (n int64, err error) {
	if err := db.QueryRowContext(ctx, q).Scan(&n); err != nil {
		return 0, fmt.Errorf("%s: %w", q, err)
	}
	return n, nil
}
