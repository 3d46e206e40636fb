package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
)

// Begin returns a Beginner for an outbox.UnitOfWork over pgx. opts may be nil.
func Begin(pool *pgxpool.Pool, opts *pgx.TxOptions) outbox.Beginner[pgx.Tx] {
	b := beginner{pool: pool}
	if opts != nil {
		b.opts = *opts
	}
	return b
}

type beginner struct {
	pool *pgxpool.Pool
	opts pgx.TxOptions
}

func (b beginner) Begin(ctx context.Context) (pgx.Tx, error) {
	if b.pool == nil {
		return nil, errNoPool
	}
	return b.pool.BeginTx(ctx, b.opts)
}

func (beginner) Commit(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }

// Rollback forgives a transaction whose connection has been closed, as pgx does
// with one whose context ended during a statement: the server rolls back.
func (beginner) Rollback(ctx context.Context, tx pgx.Tx) error {
	c := tx.Conn()
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) && !c.IsClosed() {
		return err
	}
	return nil
}

// InBatch returns an Enlister that queues: an outbox.Outbox made with it publishes
// in the round trip of the caller's own statements. [Store.Queue] says how the
// batch is sent and what its end means. s must not be nil.
func InBatch(s *Store) outbox.Enlister[*pgx.Batch] { return inBatch{s} }

type inBatch struct{ s *Store }

func (b inBatch) Enlist(ctx context.Context, batch *pgx.Batch, recs ...outbox.Record) error {
	return b.s.Queue(ctx, batch, recs...)
}
