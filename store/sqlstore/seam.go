package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/internal/sqlcore"
)

// The types of this file are database/sql as package sqlcore sees it.

type pool struct{ *sql.DB }

func (p pool) Conn(ctx context.Context) (sqlcore.Conn, error) {
	c, err := p.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{querier{c}, c}, nil
}

func (p pool) Limit() int { return p.Stats().MaxOpenConnections }

// Transient is false: database/sql does not tell, and package sqlstore says that
// a relay wants another connection.
func (p pool) Transient(context.Context) (bool, error) { return false, nil }

type conn struct {
	querier
	c *sql.Conn
}

func (c *conn) Release() error {
	if err := c.c.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}

func (c *conn) Discard() {
	_ = c.c.Raw(func(any) error { return driver.ErrBadConn })
}

// statements is what connections and transactions have in common.
type statements interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

type querier struct{ statements }

func (q querier) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	res, err := q.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, txDone(err)
	}
	return res.RowsAffected()
}

func (q querier) Query(ctx context.Context, text string, args []any, scan func(sqlcore.Row) error) error {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return txDone(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return txDone(rows.Err())
}

// txDone gives the error of a transaction that has ended its meaning.
func txDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outbox.ErrTxDone) {
		return fmt.Errorf("%w: begin a new one: %w", outbox.ErrTxDone, err)
	}
	return err
}
