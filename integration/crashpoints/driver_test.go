//go:build prove

package crashpoints_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
)

// connector opens the connections of one relay process, on which every
// statement passes the run before and after the engine has it.
type connector struct {
	p    *process
	base driver.Driver
	dsn  string
}

type hidden struct{}

func (hidden) Open(string) (driver.Conn, error) {
	return nil, errors.New("opened by its connector only")
}

func (c *connector) Driver() driver.Driver { return hidden{} }

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	if c.p.dead.Load() {
		return nil, errDead
	}
	base, err := c.base.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	n := &conn{line: line{p: c.p, hang: func() { _ = base.Close() }}, base: base} // the peer is not asked
	c.p.adopt(&n.line)
	return n, nil
}

// conn runs one statement at a time, each to its end: rows are in memory when
// they are handed out, so that between two statements nothing is under way.
type conn struct {
	line
	base driver.Conn
}

func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	return nil
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.gone
}

func (c *conn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("statements are not prepared")
}

func (c *conn) Begin() (driver.Tx, error) { return nil, errors.New("transactions are statements") }

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.base.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (res driver.Result, err error) {
	err = c.do(ctx, text, func() (int64, error) {
		if res, err = c.base.(driver.ExecerContext).ExecContext(ctx, text, args); err != nil {
			return 0, err
		}
		n, err := res.RowsAffected()
		if err != nil {
			n = 0 // not every statement can tell
		}
		return n, nil
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	m := &memory{}
	err := c.do(ctx, text, func() (int64, error) {
		rows, err := c.base.(driver.QueryerContext).QueryContext(ctx, text, args)
		if err != nil {
			return 0, err
		}
		m.columns = rows.Columns()
		for {
			row := make([]driver.Value, len(m.columns))
			if err = rows.Next(row); err != nil {
				break
			}
			for i, v := range row {
				if b, ok := v.([]byte); ok {
					row[i] = slices.Clone(b)
				}
			}
			m.rows = append(m.rows, row)
		}
		if cerr := rows.Close(); errors.Is(err, io.EOF) {
			err = cerr
		}
		return int64(len(m.rows)), err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// memory is rows that were read to their end.
type memory struct {
	columns []string
	rows    [][]driver.Value
}

func (m *memory) Columns() []string { return m.columns }
func (m *memory) Close() error      { return nil }

func (m *memory) Next(dst []driver.Value) error {
	if len(m.rows) == 0 {
		return io.EOF
	}
	copy(dst, m.rows[0])
	m.rows = m.rows[1:]
	return nil
}

// do takes one statement past its point.
func (c *conn) do(ctx context.Context, text string, statement func() (int64, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pass(callOf(ctx), describe(text), statement)
}
