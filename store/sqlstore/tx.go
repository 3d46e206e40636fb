package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

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

// checkTx refuses nil, and nil pointers in the interface, which would panic
// inside the user's library.
func checkTx(tx Tx) error {
	if tx == nil {
		return invalid("the transaction is nil: begin one and pass it")
	}
	switch v := reflect.ValueOf(tx); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Interface:
		if v.IsNil() {
			return invalid("the transaction is a nil %T: begin one and pass it", tx)
		}
	}
	return nil
}

// txError gives the error of a statement in the caller's transaction its
// meaning.
func (s *Store) txError(err error) error {
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outbox.ErrTxDone) {
		return fmt.Errorf("%w: begin a new one: %w", outbox.ErrTxDone, err)
	}
	return s.schemaError(err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outbox.ErrInvalidArgument}, args...)...)
}
