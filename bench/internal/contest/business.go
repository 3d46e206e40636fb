package contest

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgxstore"
	"github.com/postrider/postrider/store/sqlstore"
)

// Business is the user's side: transactions that insert an order and update a
// stock, and write messages.
type Business interface {
	// Prepare makes the business's own tables, with a stock for each worker.
	Prepare(ctx context.Context, workers int) error
	// Transact commits one transaction with msgs, which may be none.
	Transact(ctx context.Context, worker int, msgs []Message) error
}

const (
	businessTables = `CREATE TABLE business_order (id bigserial PRIMARY KEY, worker int NOT NULL, note text NOT NULL, at timestamptz NOT NULL DEFAULT now());
	CREATE TABLE business_stock (id int PRIMARY KEY, sold bigint NOT NULL DEFAULT 0)`
	businessStock  = `INSERT INTO business_stock SELECT generate_series(0, $1::int - 1)`
	businessInsert = `INSERT INTO business_order (worker, note) VALUES ($1, $2)`
	businessUpdate = `UPDATE business_stock SET sold = sold + 1 WHERE id = $1`
	note           = "one order of the business, as long as such a row usually is"
)

// PGXBusiness runs over pgx, with a round trip for each statement. Enqueue
// writes the messages in a round trip of their own; Queue adds their statements
// to the batch of the last business statement.
type PGXBusiness struct {
	DB      *pgxpool.Pool
	Enqueue func(ctx context.Context, tx pgx.Tx, msgs []Message) error
	Queue   func(ctx context.Context, b *pgx.Batch, msgs []Message) error
}

// Prepare implements Business.
func (b PGXBusiness) Prepare(ctx context.Context, workers int) error {
	if _, err := b.DB.Exec(ctx, businessTables); err != nil {
		return err
	}
	_, err := b.DB.Exec(ctx, businessStock, workers)
	return err
}

// Transact implements Business.
func (b PGXBusiness) Transact(ctx context.Context, worker int, msgs []Message) error {
	return pgx.BeginFunc(ctx, b.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, businessInsert, worker, note); err != nil {
			return err
		}
		if b.Queue != nil {
			var batch pgx.Batch
			batch.Queue(businessUpdate, worker)
			if err := b.Queue(ctx, &batch, msgs); err != nil {
				return err
			}
			return tx.SendBatch(ctx, &batch).Close()
		}
		if _, err := tx.Exec(ctx, businessUpdate, worker); err != nil || len(msgs) == 0 {
			return err
		}
		return b.Enqueue(ctx, tx, msgs)
	})
}

// SQLBusiness runs over database/sql.
type SQLBusiness struct {
	DB  *sql.DB
	Out *outbox.Outbox[sqlstore.Tx]
}

// Prepare implements Business.
func (b SQLBusiness) Prepare(ctx context.Context, workers int) error {
	if _, err := b.DB.ExecContext(ctx, businessTables); err != nil {
		return err
	}
	_, err := b.DB.ExecContext(ctx, businessStock, workers)
	return err
}

// Transact implements Business.
func (b SQLBusiness) Transact(ctx context.Context, worker int, msgs []Message) error {
	tx, err := b.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, businessInsert, worker, note); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, businessUpdate, worker); err != nil {
		return err
	}
	if len(msgs) > 0 {
		if _, err := b.Out.PublishAll(ctx, tx, publications(msgs)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// BusinessOf is a business that writes through a contestant, over p unless the
// contestant has connections of its own for that. queued asks for the messages
// in the round trip of the last business statement.
func BusinessOf(c Contestant, p *pgxpool.Pool, queued bool) (Business, error) {
	pr, product := c.(*Postrider)
	if e, ok := c.(Enqueuer); ok && !queued {
		return PGXBusiness{DB: p, Enqueue: e.Enqueue}, nil
	} else if !product {
		return nil, fmt.Errorf("%T cannot write in a business transaction", c)
	}
	switch store := pr.Store.(type) {
	case *sqlstore.Store:
		out, err := newOutbox(store)
		return SQLBusiness{pr.DB, out}, err
	case *pgxstore.Store:
		b := PGXBusiness{DB: pr.Pool}
		var err error
		if queued {
			b.Queue, err = publisher(pgxstore.InBatch(store))
		} else {
			b.Enqueue, err = publisher(store)
		}
		return b, err
	}
	return nil, fmt.Errorf("%T cannot write in a business transaction", pr.Store)
}

// publisher writes messages through e, as a business does.
func publisher[Tx any](e outbox.Enlister[Tx]) (func(ctx context.Context, tx Tx, msgs []Message) error, error) {
	out, err := newOutbox(e)
	return func(ctx context.Context, tx Tx, msgs []Message) error {
		_, err := out.PublishAll(ctx, tx, publications(msgs))
		return err
	}, err
}
