package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postrider/postrider/outbox"
)

// Tx is an open transaction: *sql.Tx, and what embeds one, such as *sqlx.Tx.
// What would commit each statement alone, a *sql.DB, a *sql.Conn or a pool,
// lacks its methods and does not compile (contract E9).
//
// Libraries that format SQL themselves must hand over the transaction beneath:
// bun's tx.Tx; GORM's tx.Statement.ConnPool.(*sql.Tx).
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// Begin returns a Beginner for an outbox.UnitOfWork over database/sql. opts may
// be nil. On SQLite give the DSN the driver's option for immediate
// transactions: one that reads first cannot wait for the write lock.
func Begin(db *sql.DB, opts *sql.TxOptions) outbox.Beginner[Tx] { return beginner{db, opts} }

type beginner struct {
	db   *sql.DB
	opts *sql.TxOptions
}

func (b beginner) Begin(ctx context.Context) (Tx, error) {
	if b.db == nil {
		return nil, invalid("the *sql.DB is nil: open it first")
	}
	tx, err := b.db.BeginTx(ctx, b.opts)
	if err != nil {
		return nil, err
	}
	return tx, nil
}

func (beginner) Commit(_ context.Context, tx Tx) error { return tx.Commit() }

// Rollback forgives a transaction that database/sql has rolled back already,
// as it does when the context it was begun with ends.
func (beginner) Rollback(_ context.Context, tx Tx) error {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}
