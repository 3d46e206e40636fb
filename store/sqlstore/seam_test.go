package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"

	"github.com/postrider/postrider/store/internal/sqlcore"
)

var errStopped = errors.New("ORA-01013: user requested cancel of current operation")

// stoppable is a connection whose statements end with the server's word for it, and
// whose transactions remember in which context they ended.
type stoppable struct {
	stop  func() // the call's context ends while a statement runs
	ran   []string
	begun context.Context
	ends  []bool
}

func (s *stoppable) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not asked for") }
func (s *stoppable) Close() error                        { return nil }
func (s *stoppable) Begin() (driver.Tx, error)           { return nil, errors.New("old method") }
func (s *stoppable) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	s.begun = ctx
	return s, nil
}

func (s *stoppable) end(what string) error {
	s.ran, s.ends = append(s.ran, what), append(s.ends, s.begun.Err() == nil)
	return nil
}
func (s *stoppable) Commit() error   { return s.end("commit") }
func (s *stoppable) Rollback() error { return s.end("rollback") }

func (s *stoppable) ExecContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	s.ran = append(s.ran, text)
	if s.stop != nil {
		s.stop()
	}
	return nil, errStopped
}

func (s *stoppable) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	_, err := s.ExecContext(ctx, text, args)
	return nil, err
}

type stoppableConnector struct{ s *stoppable }

func (c stoppableConnector) Connect(context.Context) (driver.Conn, error) { return c.s, nil }
func (c stoppableConnector) Driver() driver.Driver                        { return otherDriver{} }

// TestTheEndOfAContextIsTold: a driver that has only the server's word for it, and
// one that would run what is no longer wanted.
func TestTheEndOfAContextIsTold(t *testing.T) {
	t.Parallel()
	s := &stoppable{}
	db := sql.OpenDB(stoppableConnector{s})
	t.Cleanup(func() { db.Close() })
	c, err := pool{db}.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Release() })
	calls := map[string]func(context.Context) error{
		"Exec":  func(ctx context.Context) error { _, err := c.Exec(ctx, "e"); return err },
		"Query": func(ctx context.Context) error { return c.Query(ctx, "q", nil, nil) },
		"Query of a transaction": func(ctx context.Context) error {
			return querier{db}.Query(ctx, "q", nil, nil)
		},
		"Begin": func(ctx context.Context) error { _, err := c.(sqlcore.Beginner).Begin(ctx); return err },
	}
	for name, call := range calls {
		if name != "Begin" {
			s.stop = nil
			if err := call(t.Context()); !errors.Is(err, errStopped) || errors.Is(err, context.Canceled) {
				t.Errorf("%s, stopped by somebody else: %v", name, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			s.stop = cancel
			if err := call(ctx); !errors.Is(err, errStopped) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s, stopped by its context: %v", name, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n := len(s.ran)
		if err := call(ctx); !errors.Is(err, context.Canceled) || len(s.ran) != n {
			t.Errorf("%s after its context's end: %v, ran %q", name, err, s.ran[n:])
		}
	}
}

// TestTransactionsMoveTheirContext: a driver keeps the context that began a
// transaction, and would not roll it back once that has ended.
func TestTransactionsMoveTheirContext(t *testing.T) {
	t.Parallel()
	s := &stoppable{}
	db := sql.OpenDB(stoppableConnector{s})
	t.Cleanup(func() { db.Close() })
	c, err := pool{db}.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Release() })
	for _, commit := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		end, err := c.(sqlcore.Beginner).Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if s.begun.Err() == nil {
			t.Error("the transaction does not see its context end")
		}
		if err := end(t.Context(), commit); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(s.ran, []string{"commit", "rollback"}) || !slices.Equal(s.ends, []bool{true, true}) {
		t.Errorf("ran %q, in living contexts: %v", s.ran, s.ends)
	}
}
