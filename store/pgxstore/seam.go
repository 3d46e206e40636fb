package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/internal/sqlcore"
)

// The types of this file are pgx as package sqlcore sees it.

// pool is a pgxpool and what is known of the road to the server.
type pool struct {
	*pgxpool.Pool
	simple bool // the pool is configured for the simple protocol
	road   atomic.Int32
}

const (
	unknown int32 = iota
	direct
	pooled // by a transaction pooler
)

func newPool(p *pgxpool.Pool) *pool {
	return &pool{Pool: p, simple: p.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol}
}

func (p *pool) Conn(ctx context.Context) (sqlcore.Conn, error) {
	lent, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{querier: querier{lent.Conn(), p}, lent: lent}
	if p.road.Load() == unknown {
		through, err := throughPooler(ctx, lent.Conn())
		if err != nil {
			_ = c.Release()
			return nil, err
		}
		road := direct
		if through {
			road = pooled
		}
		p.road.Store(road)
	}
	return c, nil
}

// throughPooler tells whether the process that answers is another than the one
// that greeted. A pooler greets by itself, with a number of its own making.
func throughPooler(ctx context.Context, c *pgx.Conn) (bool, error) {
	res, err := c.PgConn().Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil {
		return false, err
	}
	if len(res) != 1 || len(res[0].Rows) != 1 {
		return false, errors.New("pg_backend_pid did not answer with a row")
	}
	return string(res[0].Rows[0][0]) != strconv.FormatUint(uint64(c.PgConn().PID()), 10), nil
}

// Transient implements sqlcore.Pool.
func (p *pool) Transient(ctx context.Context) (bool, error) {
	if p.road.Load() == unknown {
		c, err := p.Conn(ctx)
		if err != nil {
			return false, err
		}
		c.Release()
	}
	return p.road.Load() == pooled, nil
}

func (p *pool) Limit() int { return int(p.Stat().MaxConns()) }

type conn struct {
	querier
	lent  *pgxpool.Conn // nil: given back, or taken out of the pool for good
	lanes *laneDecoder  // nil: no lane has been read
}

// Release gives nothing back that pgx has given up. It waits in the background for
// the server to say goodbye, for 15 s on a line that has vanished, and a pool that
// still counts the connection lends no other in its place: a relay that has lost
// its lines could not open new ones.
func (c *conn) Release() error {
	switch lent := c.lent; {
	case lent == nil:
	case lent.Conn().IsClosed():
		c.Discard()
	default:
		c.lent = nil
		lent.Release()
	}
	return nil
}

// take takes the connection out of the pool for good.
func (c *conn) take() *pgx.Conn {
	lent := c.lent
	c.lent = nil
	return lent.Hijack()
}

// Discard does not wait for a server that does not answer.
func (c *conn) Discard() {
	if c.lent == nil {
		return
	}
	const limit = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out := c.take()
	_ = out.Close(ctx) // it is given up; its error says nothing new
	time.AfterFunc(limit, func() { _ = out.PgConn().Conn().Close() })
}

// statements is what connections and transactions have in common.
type statements interface {
	Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// querier is a connection, or a transaction of the user's, which is taken to be
// of the same pool.
type querier struct {
	statements
	p *pool
}

// alone tells that statements must not rely on an earlier transaction, whatever
// the pool's mode is: what was prepared in one is not there in the next.
func (q querier) alone() bool { return q.p.road.Load() == pooled && !q.p.simple }

// with is the mode, if it is not the connection's own, and the arguments.
func (q querier) with(args []any) []any {
	if !q.alone() {
		return args
	}
	return append([]any{pgx.QueryExecModeExec}, args...)
}

func (q querier) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	tag, err := q.statements.Exec(ctx, text, q.with(args)...)
	return tag.RowsAffected(), txDone(err)
}

func (q querier) Query(ctx context.Context, text string, args []any, scan func(sqlcore.Row) error) error {
	rows, err := q.statements.Query(ctx, text, q.with(args)...)
	if err != nil {
		return txDone(err)
	}
	defer rows.Close()
	var r sqlcore.Row = row{rows}
	for rows.Next() {
		if err := scan(r); err != nil {
			return err
		}
	}
	return txDone(rows.Err())
}

// Pipeline implements sqlcore.Pipeliner. A batch has the connection's mode: where
// that will not do, in a transaction always, the statements go one by one.
func (q querier) Pipeline(ctx context.Context, list []sqlcore.Statement) ([]sqlcore.Result, error) {
	res := make([]sqlcore.Result, len(list))
	if len(list) == 1 || q.alone() {
		for i, st := range list {
			rows, err := q.statements.Query(ctx, st.Text, q.with(st.Args)...)
			if err == nil {
				res[i], err = result(rows)
			}
			if err != nil {
				return nil, txDone(err)
			}
		}
		return res, nil
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
