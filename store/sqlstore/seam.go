package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

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

// Begin tells the driver itself: database/sql would end the transaction with its
// context, behind the store's back.
func (c *conn) Begin(ctx context.Context) (func(context.Context, bool) error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	at := &movingContext{}
	at.now.Store(&ctx)
	var tx driver.Tx
	err := c.c.Raw(func(dc any) (err error) {
		b, ok := dc.(driver.ConnBeginTx)
		if !ok {
			return fmt.Errorf("the driver's %T cannot begin a transaction", dc)
		}
		tx, err = b.BeginTx(at, driver.TxOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, commit bool) error {
		at.now.Store(&ctx)
		return c.c.Raw(func(any) error {
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		})
	}, nil
}

// movingContext is the context of the call at hand: drivers keep that of the call
// that began a transaction, which may have ended when it is to be rolled back.
type movingContext struct {
	now atomic.Pointer[context.Context]
}

func (c *movingContext) Deadline() (time.Time, bool) { return (*c.now.Load()).Deadline() }
func (c *movingContext) Done() <-chan struct{}       { return (*c.now.Load()).Done() }
func (c *movingContext) Err() error                  { return (*c.now.Load()).Err() }
func (c *movingContext) Value(key any) any           { return (*c.now.Load()).Value(key) }

func (c *conn) Discard() {
	_ = c.c.Raw(func(any) error { return driver.ErrBadConn })
}

// Query asks the driver itself: of what a row costs, database/sql is a third.
func (c *conn) Query(ctx context.Context, text string, args []any, scan func(sqlcore.Row) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := c.c.Raw(func(dc any) error {
		q, ok := dc.(driver.QueryerContext)
		if !ok {
			return driver.ErrSkip
		}
		named, err := namedValues(dc, args)
		if err != nil {
			return err
		}
		rows, err := q.QueryContext(ctx, text, named)
		if err != nil {
			return err
		}
		return errors.Join(each(ctx, rows, scan), rows.Close())
	})
	if errors.Is(err, driver.ErrSkip) {
		return c.querier.Query(ctx, text, args, scan)
	}
	return over(ctx, err)
}

// namedValues are arguments as the driver takes them; driver.ErrSkip if it
// wants more of database/sql than that.
func namedValues(dc any, args []any) ([]driver.NamedValue, error) {
	named := make([]driver.NamedValue, len(args))
	checker, _ := dc.(driver.NamedValueChecker)
	for i, arg := range args {
		nv := driver.NamedValue{Ordinal: i + 1, Value: arg}
		err := driver.ErrSkip
		if checker != nil {
			err = checker.CheckNamedValue(&nv)
		}
		if errors.Is(err, driver.ErrSkip) {
			nv.Value, err = driver.DefaultParameterConverter.ConvertValue(arg)
		}
		if err != nil {
			return nil, driver.ErrSkip
		}
		named[i] = nv
	}
	return named, nil
}

func each(ctx context.Context, rows driver.Rows, scan func(sqlcore.Row) error) error {
	row := make(values, len(rows.Columns()))
	for {
		switch err := rows.Next(row); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := scan(row); err != nil {
			return err
		}
	}
}

// values are the columns of a row, in the driver's memory.
type values []driver.Value

func (v values) Scan(dst ...any) error {
	if len(dst) != len(v) {
		return fmt.Errorf("%d columns came back, want %d", len(v), len(dst))
	}
	for i, d := range dst {
		if err := scan(d, v[i]); err != nil {
			return fmt.Errorf("column %d: %w", i, err)
		}
	}
	return nil
}

func scan(dst any, v driver.Value) (err error) {
	var n int64
	switch d := dst.(type) {
	case interface{ Scan(src any) error }:
		return d.Scan(v)
	case *int64:
		*d, err = number(v)
	case *int:
		n, err = number(v)
		*d = int(n)
	case *outbox.Lane:
		n, err = number(v)
		*d = outbox.Lane(n)
	case *string:
		*d, err = text(v)
	case *any:
		*d = nil // of a function that returns nothing
	default:
		err = fmt.Errorf("cannot scan into %T", dst)
	}
	return err
}

func number(v driver.Value) (int64, error) {
	if n, ok := v.(int64); ok {
		return n, nil
	}
	s, err := text(v)
	if err != nil {
		return 0, fmt.Errorf("%T is not a number", v)
	}
	return strconv.ParseInt(s, 10, 64)
}

func text(v driver.Value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	}
	return "", fmt.Errorf("%T is not text", v)
}

// statements is what connections and transactions have in common.
type statements interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

type querier struct{ statements }

func (q querier) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	// Some drivers would send it, and break off what the server has begun.
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	res, err := q.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, over(ctx, txDone(err))
	}
	return res.RowsAffected()
}

func (q querier) Query(ctx context.Context, text string, args []any, scan func(sqlcore.Row) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return over(ctx, txDone(err))
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return over(ctx, txDone(rows.Err()))
}

// over adds the end of the context to an error that came of it: a driver may have
// only the server's word, that it was asked to stop.
func over(ctx context.Context, err error) error {
	if end := ctx.Err(); err != nil && end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w: %w", end, err)
	}
	return err
}

// txDone gives the error of a transaction that has ended its meaning.
func txDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outbox.ErrTxDone) {
		return fmt.Errorf("%w: begin a new one: %w", outbox.ErrTxDone, err)
	}
	return err
}
