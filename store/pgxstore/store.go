package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/internal/sqlcore"
)

// Options configure a [Store]. The zero value, and nil, are usable.
type Options struct {
	// Schema the tables are in. Defaults to "": whatever the connection's search
	// path says.
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
}

func (o *Options) core() sqlcore.Options {
	if o == nil {
		return sqlcore.Options{}
	}
	return sqlcore.Options{Schema: o.Schema, Prefix: o.Prefix, Routes: o.Routes, MaxBytes: o.MaxBytes}
}

// Store is the outbox and the inbox of one database. It implements every
// capability of package outbox, is safe for concurrent use, and returns memory
// that the caller owns. It starts nothing and closes nothing: the pool stays
// the caller's.
type Store struct {
	core *sqlcore.Store
	pool *pool
}

var (
	_ outbox.Store            = (*Store)(nil)
	_ outbox.Enlister[pgx.Tx] = (*Store)(nil)
	_ outbox.LaneStore        = (*Store)(nil)
	_ outbox.LaneSessioner    = (*Store)(nil)
	_ outbox.Concurrent       = (*Store)(nil)
	_ outbox.Releaser         = (*Store)(nil)
	_ outbox.ServerClock      = (*Store)(nil)
	_ outbox.Router           = (*Store)(nil)
	_ outbox.AgeStore         = (*Store)(nil)
	_ outbox.DeadLetters      = (*Store)(nil)
	_ outbox.Parker           = (*Store)(nil)
	_ outbox.Confirmer        = (*Store)(nil)
	_ outbox.LaneParker       = (*Store)(nil)
	_ outbox.Inspector        = (*Store)(nil)
	_ inbox.Store[pgx.Tx]     = (*Store)(nil)
	_ inbox.ClaimStore        = (*Store)(nil)
)

// New returns a store on pool. opts may be nil. It creates no tables: see
// [Store.Migrate] and [Store.Check]. It reads the routes if the tables are there
// and a connection is to be had within a second, else the first call that needs
// them does. Errors are outbox.ErrInvalidArgument.
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if pool == nil {
		return nil, errNoPool
	}
	p := newPool(pool)
	core, err := sqlcore.New(sqlcore.Config{
		Package: "pgxstore", Dialect: sqlcore.PostgreSQL, Pool: p, Sessions: p, Rows: newTable, Options: opts.core(),
		MorePool: "raise MaxConns of the pool, pool_max_conns in its URL",
	})
	if err != nil {
		return nil, err
	}
	return &Store{core, p}, nil
}

var errNoPool = fmt.Errorf("%w: the *pgxpool.Pool is nil: open it first", outbox.ErrInvalidArgument)

// Script is the DDL for an empty database, with the routes of opts, as Migrate
// would leave it: for deployment tooling that applies SQL itself. opts may be
// nil. Errors are outbox.ErrInvalidArgument.
func Script(opts *Options) (string, error) { return sqlcore.Script(sqlcore.PostgreSQL, opts.core()) }

// Enlist implements outbox.Enlister. It costs one round trip for each 8 MiB. One
// record is one statement, many are one per 1,000 records or 8 MiB of each route,
// scheduled ones a statement of their own, and several statements one pgx.Batch;
// behind a transaction pooler they go one by one. An id is looked for among the
// rows of its route that tx can see, unless the record is fresh
// (outbox.Record.Fresh); a concurrent transaction that enlists the same id under
// another ordering key is not noticed.
//
// It never waits for a lock and reads nothing outside of tx once the routes
// are known. At REPEATABLE READ or SERIALIZABLE the engine may end tx with a
// serialization failure where an id was enlisted concurrently.
func (s *Store) Enlist(ctx context.Context, tx pgx.Tx, recs ...outbox.Record) error {
	err := sqlcore.CheckTx(tx)
	if err == nil {
		err = s.core.Enlist(ctx, querier{tx, s.pool}, recs)
	}
	return wrap("enlist", err)
}

// Queue appends the statements that [Store.Enlist] would run to b, so that they
// share a round trip with the caller's own. It copies recs. Send b through the
// transaction of the business rows, b last, and end it with Close (see
// pgx.Batch): it returns outbox.ErrDuplicateID where an id is pending already,
// and the caller must roll back, for the other messages may be written, and where
// a fresh record was queued twice the transaction has failed. Results of b that
// are read one by one do not tell.
//
// Errors are those of Enlist before its first statement; b is unchanged then.
func (s *Store) Queue(ctx context.Context, b *pgx.Batch, recs ...outbox.Record) error {
	if b == nil {
		return wrap("queue", fmt.Errorf("%w: the *pgx.Batch is nil", outbox.ErrInvalidArgument))
	}
	owned := make([]outbox.Record, len(recs))
	for i, r := range recs {
		r.Message = r.Message.Clone()
		owned[i] = r
	}
	list, check, err := s.core.Queue(ctx, owned)
	if err != nil {
		return wrap("queue", err)
	}
	for i, st := range list {
		b.Queue(st.Text, st.Args...).Query(func(rows pgx.Rows) error {
			r, err := result(rows)
			return wrap("enlist", check(i, r, err))
		})
	}
	return nil
}

// Reserve implements inbox.Store. At READ COMMITTED a concurrent reservation is
// waited for and then seen; at REPEATABLE READ and SERIALIZABLE the engine may
// end tx with a serialization failure instead.
func (s *Store) Reserve(ctx context.Context, tx pgx.Tx, r inbox.Record) (ok bool, err error) {
	if err = sqlcore.CheckTx(tx); err == nil {
		ok, err = s.core.Reserve(ctx, querier{tx, s.pool}, r)
	}
	return ok, wrap("reserve", err)
}

// Processed implements inbox.Store.
func (s *Store) Processed(ctx context.Context, tx pgx.Tx, consumer, messageID string, now time.Time) (ok bool, err error) {
	if err = sqlcore.CheckTx(tx); err == nil {
		ok, err = s.core.Processed(ctx, querier{tx, s.pool}, consumer, messageID, now)
	}
	return ok, wrap("look up inbox", err)
}

// Mark implements inbox.Store.
func (s *Store) Mark(ctx context.Context, tx pgx.Tx, r inbox.Record) error {
	err := sqlcore.CheckTx(tx)
	if err == nil {
		err = s.core.Mark(ctx, querier{tx, s.pool}, r)
	}
	return wrap("mark inbox", err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgxstore: %s: %w", what, err)
}
