package app

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx
	_ "modernc.org/sqlite"             // driver sqlite

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// connectTimeout is how long a database or broker may take to answer first.
const connectTimeout = 10 * time.Second

// StoreOptions say which tables of the database are meant. nil and the zero
// value mean the store's defaults.
type StoreOptions struct {
	Schema string
	Prefix string
	Routes []outbox.Route
	// Create makes an SQLite file that does not exist. Without it a wrong path
	// is an error.
	Create bool
}

// Store is an open store and its database.
type Store struct {
	*sqlstore.Store
	DB       *sql.DB
	Database Database
}

// OpenStore opens the store behind a database URL (see [ParseDatabase]) and
// makes sure that the database answers; the tables are neither made nor
// checked. The caller closes it.
func OpenStore(ctx context.Context, url string, opts *StoreOptions) (*Store, error) {
	if opts == nil {
		opts = &StoreOptions{}
	}
	d, err := ParseDatabase(url)
	if err != nil {
		return nil, err
	}
	if !opts.Create {
		if err := d.exists(); err != nil {
			return nil, err
		}
	}
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		return nil, scrub(fmt.Errorf("open %s: %w", d.Name, err), d.secret)
	}
	// A relay's loops keep connections of their own.
	db.SetMaxIdleConns(8)
	s := &Store{DB: db, Database: d}
	s.Store, err = sqlstore.New(db, Dialect(d.Engine), &sqlstore.Options{Schema: opts.Schema, Prefix: opts.Prefix, Routes: opts.Routes})
	if err != nil {
		db.Close()
		return nil, err
	}
	ping, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := db.PingContext(ping); err != nil {
		db.Close()
		if d.Engine == SQLite {
			return nil, fmt.Errorf("cannot open %s: %w: check that it is an SQLite file, and that this user can write it and its directory, which must exist and have room", d.Name, err)
		}
		return nil, scrub(fmt.Errorf("cannot connect to %s: %w: check that the server runs, the URL and the password", d.Name, err), d.secret)
	}
	return s, nil
}

// Close closes the database.
func (s *Store) Close() error { return s.DB.Close() }

// Dialect is the store's dialect of an engine; nil when there is none.
func Dialect(engine string) *sqlstore.Dialect {
	switch engine {
	case Postgres:
		return sqlstore.PostgreSQL
	case SQLite:
		return sqlstore.SQLite
	}
	return nil
}
