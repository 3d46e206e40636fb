package demo

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// orderTx is the transaction of one order: pgx's own on PostgreSQL, else that of
// database/sql.
type orderTx interface {
	number(ctx context.Context, e engine, customer int64) (int64, error)
	exec(ctx context.Context, q string, args ...any) error
	publish(ctx context.Context, p outbox.Publication) error
	commit(ctx context.Context) error
	rollback() error // does nothing after a commit
}

// orders returns what begins the transactions of orders in a store.
func orders(db *app.Store) (begin func(context.Context) (orderTx, error), err error) {
	types, err := orderTypes()
	if err != nil {
		return nil, err
	}
	opts := &outbox.Options{Types: types, Transport: route, Source: "/postrider/demo/shop"}
	if db.PGX != nil {
		box, err := outbox.New(db.PGX, opts)
		return func(ctx context.Context) (orderTx, error) {
			tx, err := db.Pool.Begin(ctx)
			return pgxOrder{tx, box}, err
		}, err
	}
	store, err := db.OverSQL()
	if err != nil {
		return nil, err
	}
	box, err := outbox.New[sqlstore.Tx](store, opts)
	return func(ctx context.Context) (orderTx, error) {
		tx, err := db.DB.BeginTx(ctx, nil)
		return sqlOrder{tx, box}, err
	}, err
}

type pgxOrder struct {
	tx  pgx.Tx
	box *outbox.Outbox[pgx.Tx]
}

const nextNumber = `UPDATE {customers} SET orders = orders + 1 WHERE id = ? RETURNING orders`

func (o pgxOrder) number(ctx context.Context, e engine, customer int64) (n int64, err error) {
	err = o.tx.QueryRow(ctx, e.text(nextNumber), customer).Scan(&n)
	return n, err
}

func (o pgxOrder) exec(ctx context.Context, q string, args ...any) error {
	_, err := o.tx.Exec(ctx, q, args...)
	return err
}

func (o pgxOrder) publish(ctx context.Context, p outbox.Publication) error {
	_, err := o.box.Publish(ctx, o.tx, p)
	return err
}

func (o pgxOrder) commit(ctx context.Context) error { return o.tx.Commit(ctx) }

// rollback goes on when the order's own context has ended.
func (o pgxOrder) rollback() error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return o.tx.Rollback(ctx)
}

type sqlOrder struct {
	tx  *sql.Tx
	box *outbox.Outbox[sqlstore.Tx]
}

func (o sqlOrder) number(ctx context.Context, e engine, customer int64) (n int64, err error) {
	if e.Kind != app.MySQL {
		err = o.tx.QueryRowContext(ctx, e.text(nextNumber), customer).Scan(&n)
		return n, err
	}
	res, err := o.tx.ExecContext(ctx, e.text(`UPDATE {customers} SET orders = LAST_INSERT_ID(orders + 1) WHERE id = ?`), customer)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

func (o sqlOrder) exec(ctx context.Context, q string, args ...any) error {
	_, err := o.tx.ExecContext(ctx, q, args...)
	return err
}

func (o sqlOrder) publish(ctx context.Context, p outbox.Publication) error {
	_, err := o.box.Publish(ctx, o.tx, p)
	return err
}

func (o sqlOrder) commit(context.Context) error { return o.tx.Commit() }

func (o sqlOrder) rollback() error { return o.tx.Rollback() }
