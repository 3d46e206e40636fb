package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/internal/sqlcore"
)

// Options configure a [Store]. The zero value, and nil, are usable.
type Options struct {
	// Schema the tables are in. Defaults to "": whatever the connection's search
	// path says. Engines without schemas refuse one.
	Schema string
	// Prefix of every table's name, 1 to 32 bytes. Defaults to "postrider_".
	Prefix string
	// Routes that Migrate creates and Check compares. A count of 0 takes what
	// is stored, or 16 ordered and 8 unordered lanes for a new route. First is
	// ignored. Defaults to nil: Migrate creates a route "default" if there is
	// none at all.
	Routes []outbox.Route
	// MaxBytes bounds outbox.Message.Size of an enlisted message. Defaults to
	// outbox.DefaultSize, 1 MiB.
	MaxBytes int
	// RelayDB is a second pool for the connections that a relay pins, so that
	// they do not count against the first one's limit. It must reach the same
	// database. Defaults to nil: the first pool serves the relay as well.
	RelayDB *sql.DB
}

func (o *Options) core() sqlcore.Options {
	if o == nil {
		return sqlcore.Options{}
	}
	return sqlcore.Options{Schema: o.Schema, Prefix: o.Prefix, Routes: o.Routes, MaxBytes: o.MaxBytes}
}

// Store is the outbox and the inbox of one database. It implements every
// capability of package outbox, is safe for concurrent use, and returns memory
// that the caller owns. It starts nothing and closes nothing: the pools stay
// the caller's.
type Store struct{ core *sqlcore.Store }

var (
	_ outbox.Store         = (*Store)(nil)
	_ outbox.Enlister[Tx]  = (*Store)(nil)
	_ outbox.LaneStore     = (*Store)(nil)
	_ outbox.LaneSessioner = (*Store)(nil)
	_ outbox.Concurrent    = (*Store)(nil)
	_ outbox.Releaser      = (*Store)(nil)
	_ outbox.ServerClock   = (*Store)(nil)
	_ outbox.Router        = (*Store)(nil)
	_ outbox.AgeStore      = (*Store)(nil)
	_ outbox.DeadLetters   = (*Store)(nil)
	_ outbox.Parker        = (*Store)(nil)
	_ outbox.Confirmer     = (*Store)(nil)
	_ outbox.LaneParker    = (*Store)(nil)
	_ outbox.Inspector     = (*Store)(nil)
	_ inbox.Store[Tx]      = (*Store)(nil)
	_ inbox.ClaimStore     = (*Store)(nil)
)

// New returns a store on db, whose driver speaks d. opts may be nil. It creates
// no tables: see [Store.Migrate] and [Store.Check]. It reads the routes if the
// tables are there and a connection is to be had within a second, else the
// first call that needs them does. Errors are outbox.ErrInvalidArgument.
func New(db *sql.DB, d *Dialect, opts *Options) (*Store, error) {
	switch {
	case db == nil:
		return nil, invalid("the *sql.DB is nil: open it first")
	case d == nil:
		return nil, errNoDialect
	}
	relay := db
	if opts != nil && opts.RelayDB != nil {
		relay = opts.RelayDB
	}
	for _, db := range []*sql.DB{db, relay} {
		if err := d.checkDriver(db); err != nil {
			return nil, err
		}
	}
	core, err := sqlcore.New(sqlcore.Config{
		Package: "sqlstore", Dialect: d.core, Pool: pool{db}, Sessions: pool{relay}, Options: opts.core(),
		MorePool: "raise SetMaxOpenConns, or give the relay a pool of its own in Options.RelayDB",
	})
	if err != nil {
		return nil, err
	}
	return &Store{core}, nil
}

var errNoDialect = invalid("the dialect is nil: use sqlstore.PostgreSQL, sqlstore.SQLite, sqlstore.MySQL, sqlstore.Oracle or sqlstore.SQLServer")

// Script is the DDL for an empty database, with the routes of opts, as Migrate
// would leave it: for deployment tooling that applies SQL itself. opts may be
// nil. Errors are outbox.ErrInvalidArgument.
func Script(d *Dialect, opts *Options) (string, error) {
	if d == nil {
		return "", errNoDialect
	}
	return sqlcore.Script(d.core, opts.core())
}

// Enlist implements outbox.Enlister. One record costs one statement, many cost
// one per 1,000 records or 8 MiB of each route, and scheduled ones a statement
// of their own. An id is looked for among the rows of its route that tx can
// see; a concurrent transaction that enlists the same id under another
// ordering key is not noticed.
//
// It never waits for a lock and reads nothing outside of tx once the routes
// are known. At REPEATABLE READ or SERIALIZABLE the engine may end tx with a
// serialization failure where an id was enlisted concurrently.
func (s *Store) Enlist(ctx context.Context, tx Tx, recs ...outbox.Record) error {
	err := sqlcore.CheckTx(tx)
	if err == nil {
		err = s.core.Enlist(ctx, querier{tx}, recs)
	}
	return wrap("enlist", err)
}

// Reserve implements inbox.Store. At READ COMMITTED a concurrent reservation is
// waited for and then seen; at REPEATABLE READ and SERIALIZABLE the engine may
// end tx with a serialization failure instead.
func (s *Store) Reserve(ctx context.Context, tx Tx, r inbox.Record) (ok bool, err error) {
	if err = sqlcore.CheckTx(tx); err == nil {
		ok, err = s.core.Reserve(ctx, querier{tx}, r)
	}
	return ok, wrap("reserve", err)
}

// Processed implements inbox.Store.
func (s *Store) Processed(ctx context.Context, tx Tx, consumer, messageID string, now time.Time) (ok bool, err error) {
	if err = sqlcore.CheckTx(tx); err == nil {
		ok, err = s.core.Processed(ctx, querier{tx}, consumer, messageID, now)
	}
	return ok, wrap("look up inbox", err)
}

// Mark implements inbox.Store.
func (s *Store) Mark(ctx context.Context, tx Tx, r inbox.Record) error {
	err := sqlcore.CheckTx(tx)
	if err == nil {
		err = s.core.Mark(ctx, querier{tx}, r)
	}
	return wrap("mark inbox", err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlstore: %s: %w", what, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outbox.ErrInvalidArgument}, args...)...)
}
