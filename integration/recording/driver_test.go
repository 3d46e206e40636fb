package recording_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// name is compared text: a route, a consumer, the id of a consumed message.
// Engines keep it in columns of different types.
type name string

// row is what a statement returns, column by column: int64, string, name, []byte or
// nil, which the engine's values function makes values of its driver's.
type row []any

// recorder answers the statements of one engine as its server would, and keeps
// what each of them was called with.
type recorder struct {
	e     *engine
	steps []known

	mu      sync.Mutex
	answers map[string][]row
	changes map[string]int64
	ran     map[string]int      // steps of a statement that have run, as bits
	calls   map[string][]string // the arguments of each, as often as they differ
	fails   map[string][]int    // numbers of errors to come
	session []string            // texts of no statement
	schema  map[string]bool
	bad     []string
	working func() // the next call has no answer; this runs when it has come
}

func newRecorder(tb testing.TB, e *engine) *recorder {
	return &recorder{
		e: e, steps: e.statements(tb), schema: e.schemaTexts(tb),
		answers: map[string][]row{}, changes: map[string]int64{}, fails: map[string][]int{}, ran: map[string]int{}, calls: map[string][]string{},
	}
}

// on sets the rows that a statement returns from now on.
func (r *recorder) on(statement string, rows ...row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[statement] = rows
}

// changing sets how many rows a statement changes from now on: 1 until then.
func (r *recorder) changing(statement string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes[statement] = n
}

// failing has a statement fail with an error of the server's, so many times.
func (r *recorder) failing(statement string, number, times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range times {
		r.fails[statement] = append(r.fails[statement], number)
	}
}

// failed is the number of the error that a text is to fail with, or 0.
func (r *recorder) failed(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.steps {
		if list := r.fails[k.statement]; len(list) > 0 && k.pattern.MatchString(text) {
			r.fails[k.statement] = list[1:]
			return list[0]
		}
	}
	return 0
}

// works tells that a call is to be left without an answer, and that it has come.
func (r *recorder) works() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	met := r.working
	r.working = nil
	if met != nil {
		met()
	}
	return met != nil
}

// forget takes all answers back.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.answers)
	clear(r.changes)
}

// meet notes a statement, and finds what it answers: rows of a query, and how many
// rows it has changed.
func (r *recorder) meet(text string, args []driver.NamedValue) (rows [][]driver.Value, changed int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(text, args)
	if r.e.args != nil {
		if err := r.e.args(text, args); err != nil {
			r.bad = append(r.bad, fmt.Sprintf("%v: %s", err, text))
		}
	}
	var found []known
	for _, k := range r.steps {
		if k.pattern.MatchString(text) {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		if !r.schema[text] {
			r.session = append(r.session, text)
		}
		if s := r.e.settings; s != "" && strings.HasPrefix(text, s) {
			return [][]driver.Value{{r.e.value("")}}, 0
		}
		return nil, 0
	}
	changed = 1
	var list []row
	answering := ""
	for _, k := range found {
		r.ran[k.statement] |= 1 << k.step
		label, call := k.label(), r.e.describe(args)
		if !slices.Contains(r.calls[label], call) {
			r.calls[label] = append(r.calls[label], call)
		}
		if n, ok := r.changes[k.statement]; ok {
			changed = n
		}
		// Two statements may begin alike: the one that has an answer is meant.
		if answer := r.answers[k.statement]; len(answer) > 0 {
			answering = k.statement
			if list = answer; k.asks {
				list = list[:1]
			}
		}
	}
	for _, l := range list {
		if r.e.row != nil {
			l = r.e.row(answering, l)
		}
		values := make([]driver.Value, len(l))
		for i, v := range l {
			values[i] = r.e.value(v)
		}
		rows = append(rows, values)
	}
	return rows, changed
}

// count compares the arguments with what the text asks for.
func (r *recorder) count(text string, args []driver.NamedValue) {
	bare := quoted.ReplaceAllString(text, "''")
	if r.e.mark == "" {
		if n := strings.Count(bare, "?"); n != len(args) {
			r.bad = append(r.bad, fmt.Sprintf("%d arguments for %d marks: %s", len(args), n, text))
		}
		return
	}
	named := map[int]bool{}
	for _, m := range regexp.MustCompile(regexp.QuoteMeta(r.e.mark)+`(\d+)`).FindAllStringSubmatch(bare, -1) {
		n, _ := strconv.Atoi(m[1])
		named[n] = true
	}
	for i := range len(args) {
		if !named[i+1] {
			r.bad = append(r.bad, fmt.Sprintf("argument %d of %d is not in the text: %s", i+1, len(args), text))
		}
		delete(named, i+1)
	}
	for _, n := range slices.Sorted(maps.Keys(named)) {
		r.bad = append(r.bad, fmt.Sprintf("there are %d arguments, the text has one number %d: %s", len(args), n, text))
	}
}

var quoted = regexp.MustCompile(`'[^']*'`)

// describe is arguments as the golden file has them.
func (e *engine) describe(args []driver.NamedValue) string {
	var b strings.Builder
	for _, a := range args {
		fmt.Fprintf(&b, "  %d %T", a.Ordinal, a.Value)
		switch v := a.Value.(type) {
		case string:
			text := strings.TrimRight(v, " ")
			fmt.Fprintf(&b, " %s", text)
			if n := len(v) - len(text); n > 0 {
				fmt.Fprintf(&b, " and %d spaces", n)
			}
		case []byte:
			data := strings.TrimRight(string(v), "\x00")
			n := len(v) - len(data)
			if n < 24 || v == nil {
				data, n = string(v), 0
			}
			fmt.Fprintf(&b, " %s", hex.EncodeToString([]byte(data)))
			if n > 0 {
				fmt.Fprintf(&b, " and %d zeros", n)
			}
		case nil:
		case [][]byte:
			fmt.Fprintf(&b, " %x", v)
		default:
			fmt.Fprintf(&b, " %v", v)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// The driver. database/sql looks which interfaces it has: direct is for those
// that run a text with arguments themselves.

func (r *recorder) open(tb testing.TB) *sql.DB {
	db := sql.OpenDB(connector{r})
	tb.Cleanup(func() { db.Close() })
	return db
}

type connector struct{ r *recorder }

func (c connector) Driver() driver.Driver { return fakeDriver{} }
func (c connector) Connect(context.Context) (driver.Conn, error) {
	if c.r.e.direct {
		return &direct{conn{c.r}}, nil
	}
	return &conn{c.r}, nil
}

type fakeDriver struct{}

func (fakeDriver) Open(string) (driver.Conn, error) { return nil, driver.ErrBadConn }

type conn struct{ r *recorder }

func (c *conn) Close() error                       { return nil }
func (c *conn) Begin() (driver.Tx, error)          { return c, nil }
func (c *conn) Commit() error                      { return nil }
func (c *conn) Rollback() error                    { return nil }
func (c *conn) ResetSession(context.Context) error { return nil }

func (c *conn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }

// CheckNamedValue is the real driver's, or its like.
func (c *conn) CheckNamedValue(nv *driver.NamedValue) error { return c.r.e.check(nv) }

func (c *conn) Prepare(text string) (driver.Stmt, error) { return &stmt{c, text}, nil }

type stmt struct {
	c    *conn
	text string
}

func (s *stmt) Close() error  { return nil }
func (s *stmt) NumInput() int { return -1 }

func (s *stmt) Exec([]driver.Value) (driver.Result, error) { panic("old method") }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { panic("old method") }

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.exec(s.text, args)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.query(s.text, args)
}

func (c *conn) exec(text string, args []driver.NamedValue) (driver.Result, error) {
	_, changed := c.r.meet(text, args)
	if c.r.failed(text) != 0 {
		return nil, errors.New(c.r.e.denied)
	}
	return driver.RowsAffected(changed), nil
}

func (c *conn) query(text string, args []driver.NamedValue) (driver.Rows, error) {
	list, _ := c.r.meet(text, args)
	if c.r.failed(text) != 0 {
		return nil, errors.New(c.r.e.denied)
	}
	return &rows{list: list}, nil
}

type direct struct{ conn }

func (c *direct) ExecContext(_ context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(text, args)
}

func (c *direct) QueryContext(_ context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(text, args)
}

type rows struct{ list [][]driver.Value }

func (r *rows) Columns() []string {
	if len(r.list) == 0 {
		return nil
	}
	return make([]string, len(r.list[0]))
}

func (r *rows) Close() error { return nil }

func (r *rows) Next(dst []driver.Value) error {
	if len(r.list) == 0 {
		return io.EOF
	}
	copy(dst, r.list[0])
	r.list = r.list[1:]
	return nil
}
