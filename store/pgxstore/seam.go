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
	return &conn{querier: querier{c}, c: c}, nil
}

func (p pool) Limit() int { return int(p.Stat().MaxConns()) }

type conn struct {
	querier
	c     *pgxpool.Conn
	lanes *laneDecoder // nil: no lane has been read
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
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
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

// Pipeline implements sqlcore.Pipeliner.
func (q querier) Pipeline(ctx context.Context, list []sqlcore.Statement) ([]sqlcore.Result, error) {
	res := make([]sqlcore.Result, len(list))
	if len(list) == 1 {
		rows, err := q.statements.Query(ctx, list[0].Text, list[0].Args...)
		if err == nil {
			res[0], err = result(rows)
		}
		return res, txDone(err)
	}
	var b pgx.Batch
	for _, st := range list {
		b.Queue(st.Text, st.Args...)
	}
	br := q.SendBatch(ctx, &b)
	defer br.Close()
	for i := range res {
		rows, err := br.Query()
		if err == nil {
			res[i], err = result(rows)
		}
		if err != nil {
			return nil, txDone(err)
		}
	}
	return res, br.Close()
}

// result reads the rows of a statement that returns ids or nothing.
func result(rows pgx.Rows) (r sqlcore.Result, err error) {
	defer rows.Close()
	for rows.Next() {
		id, err := parseID(rows.RawValues()[0])
		if err != nil {
			return r, err
		}
		r.IDs = append(r.IDs, id)
	}
	r.Changed = rows.CommandTag().RowsAffected()
	return r, rows.Err()
}

// txDone gives the error of a transaction that has ended its meaning.
func txDone(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) && !errors.Is(err, outbox.ErrTxDone) {
		return fmt.Errorf("%w: begin a new one: %w", outbox.ErrTxDone, err)
	}
	return err
}
