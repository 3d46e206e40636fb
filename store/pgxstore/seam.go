package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/internal/sqlcore"
)

// The types of this file are pgx as package sqlcore sees it.

type pool struct{ *pgxpool.Pool }

func (p pool) Conn(ctx context.Context) (sqlcore.Conn, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{querier{c}, c}, nil
}

func (p pool) Limit() int { return int(p.Stat().MaxConns()) }

type conn struct {
	querier
	c *pgxpool.Conn
}

func (c *conn) Release() error {
	c.c.Release()
	return nil
}

// Discard does not wait for a server that does not answer.
func (c *conn) Discard() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.c.Conn().Close(ctx) // what is closed is not given back
}

// statements is what connections and transactions have in common.
type statements interface {
	Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
}

type querier struct{ statements }

func (q querier) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	tag, err := q.statements.Exec(ctx, text, args...)
	return tag.RowsAffected(), txDone(err)
}

func (q querier) Query(ctx context.Context, text string, args []any, scan func(sqlcore.Row) error) error {
	rows, err := q.statements.Query(ctx, text, args...)
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
	if errors.Is(err, pgx.ErrTxClosed) && !errors.Is(err, outbox.ErrTxDone) {
		return fmt.Errorf("%w: begin a new one: %w", outbox.ErrTxDone, err)
	}
	return err
}
