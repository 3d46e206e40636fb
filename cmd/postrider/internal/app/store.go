package app

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // driver sqlite

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgxstore"
	"github.com/postrider/postrider/store/sqlstore"
)

// connectTimeout is how long a database or broker may take to answer first.
const connectTimeout = 10 * time.Second

// pingTimeout is how long an idle connection may take to show that it lives, unless the
// URL has pool_ping_timeout.
const pingTimeout = 3 * time.Second

// minConns is enough for a relay, which keeps four connections, and for what
// goes on beside it.
const minConns = 8

// StoreOptions say which tables of the database are meant. nil and the zero
// value mean the store's defaults.
type StoreOptions struct {
	Schema string
	Prefix string
	Routes []outbox.Route
	// Create makes an SQLite file that does not exist. Without it a wrong path
	// is an error.
	Create bool
	// Conns is how many connections there may be. Defaults to what a relay and
	// some commands need, on PostgreSQL unless the URL has pool_max_conns.
	Conns int
}

// Backend is what the program does with an outbox, its relay included.
type Backend interface {
	outbox.Store
	outbox.LaneStore
	outbox.LaneSessioner
	outbox.Concurrent
	outbox.Releaser
	outbox.ServerClock
	outbox.Router
	outbox.AgeStore
	outbox.DeadLetters
	outbox.Parker
	outbox.Confirmer
	outbox.LaneParker
	outbox.Inspector
	Migrate(ctx context.Context) error
	Check(ctx context.Context) error
	CheckRelay(ctx context.Context) error
}

// Store is an open store and its database.
type Store struct {
	Backend
	DB       *sql.DB
	PGX      *pgxstore.Store // the Backend on PostgreSQL, else nil
	Pool     *pgxpool.Pool   // on PostgreSQL, what DB takes its connections from
	Database Database
	options  sqlstore.Options
	file     os.FileInfo // of an SQLite file
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
	s := &Store{Database: d, options: sqlstore.Options{Schema: opts.Schema, Prefix: opts.Prefix, Routes: opts.Routes}}
	if err := s.open(ctx, opts); err != nil {
		s.Close()
		return nil, fmt.Errorf("open %s: %w", scrubName(d.Name, d.secret), scrub(err, d.secret))
	}
	ping, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := s.DB.PingContext(ping); err != nil {
		s.Close()
		if d.Engine == SQLite {
			return nil, fmt.Errorf("cannot open %s: %w: check that it is an SQLite file, and that this user can write it and its directory, which must exist and have room", d.Name, err)
		}
		if ping.Err() != nil && ctx.Err() == nil { // such as the port of another engine's server
			err = fmt.Errorf("no answer within %s: %w", connectTimeout, err)
		}
		return nil, fmt.Errorf("cannot connect to %s: %w: check that the server runs, the URL and the password", scrubName(d.Name, d.secret), scrub(err, d.secret))
	}
	if d.path != "" {
		s.file, _ = os.Stat(d.path)
	}
	return s, nil
}

// Gone tells whether the SQLite file is no longer at its path, or is another one, as
// after a backup was put back: the connections stay with the old one for good, which
// nobody else writes to any more.
func (s *Store) Gone() error {
	if s.file == nil {
		return nil
	}
	switch now, err := os.Stat(s.Database.path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the SQLite file %s has been removed", s.Database.path)
	case err == nil && !os.SameFile(now, s.file):
		return fmt.Errorf("the SQLite file %s has been replaced by another", s.Database.path)
	}
	return nil
}

func (s *Store) open(ctx context.Context, opts *StoreOptions) (err error) {
	if s.Database.Engine == Postgres {
		return s.openPool(ctx, opts)
	}
	if s.DB, err = sql.Open(s.Database.Driver, s.Database.DSN); err != nil {
		return err
	}
	// A relay's loops keep connections of their own.
	s.DB.SetMaxOpenConns(opts.Conns)
	s.DB.SetMaxIdleConns(max(opts.Conns, minConns))
	s.Backend, err = s.OverSQL()
	return err
}

// OverSQL returns a store over DB, for transactions of database/sql.
func (s *Store) OverSQL() (*sqlstore.Store, error) {
	if st, ok := s.Backend.(*sqlstore.Store); ok {
		return st, nil
	}
	return sqlstore.New(s.DB, Dialect(s.Database.Engine), &s.options)
}

func (s *Store) openPool(ctx context.Context, opts *StoreOptions) error {
	cfg, err := pgxpool.ParseConfig(s.Database.DSN)
	if err != nil {
		return err
	}
	switch {
	case opts.Conns > 0:
		cfg.MaxConns = int32(opts.Conns)
	case !strings.Contains(s.Database.DSN, "pool_max_conns="):
		cfg.MaxConns = max(cfg.MaxConns, minConns)
	}
	// A connection that idled on a line that has vanished is given up for the next.
	cfg.PingTimeout = cmp.Or(cfg.PingTimeout, pingTimeout)
	if s.Pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	s.DB = stdlib.OpenDBFromPool(s.Pool)
	s.PGX, err = pgxstore.New(s.Pool, &pgxstore.Options{Schema: opts.Schema, Prefix: opts.Prefix, Routes: opts.Routes})
	s.Backend = s.PGX
	return err
}

// Listen has wake called after commits of other processes, where the database can
// tell, until ctx ends or the returned function is called, which waits for that.
// say is called with what goes wrong.
func (s *Store) Listen(ctx context.Context, wake func(), say func(error)) (stop func()) {
	if s.PGX == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var lost atomic.Bool
	heard := func() { // also when it has begun to listen
		if lost.Swap(false) {
			say(nil)
		}
		wake()
	}
	trouble := func(err error) {
		if !lost.Swap(true) {
			say(scrub(err, s.Database.secret))
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.PGX.Listen(ctx, heard, &pgxstore.ListenOptions{Trouble: trouble}); err != nil {
			say(err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// Reset has idle connections closed: after an outage without a word each of them
// would be tried, and waited for, before a new one is opened.
func (s *Store) Reset() {
	if s.Pool != nil {
		s.Pool.Reset()
	}
}

// closeLimit is how long Close waits for connections that are closed in the background.
const closeLimit = 2 * time.Second

// Close closes the database. Connections that pgx has given up and still says goodbye
// to, for 15 s where nobody answers, are left to the end of the process.
func (s *Store) Close() error {
	var err error
	if s.DB != nil {
		err = s.DB.Close()
	}
	if s.Pool != nil {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			s.Pool.Close()
		}()
		select {
		case <-closed:
		case <-time.After(closeLimit):
		}
	}
	return err
}

// Dialect is the store's dialect of an engine; nil when there is none.
func Dialect(engine string) *sqlstore.Dialect {
	switch engine {
	case Postgres:
		return sqlstore.PostgreSQL
	case SQLite:
		return sqlstore.SQLite
	case MySQL:
		return sqlstore.MySQL
	case Oracle:
		return sqlstore.Oracle
	case SQLServer:
		return sqlstore.SQLServer
	}
	return nil
}
