//go:build prove

package crashpoints_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

var (
	errCut  = errors.New("connection reset by peer")
	errDead = errors.New("this process was killed")
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
	n := &conn{base: base, p: c.p}
	c.p.adopt(n)
	return n, nil
}

// conn runs one statement at a time, each to its end: rows are in memory when
// they are handed out, so that between two statements nothing is under way.
type conn struct {
	p *process

	mu    sync.Mutex
	base  driver.Conn
	gone  bool // cut, or its process was killed
	in    bool // inside a transaction
	wrote bool // which has changed something
	dirty bool // other than to renew what was there
}

// end closes the engine's connection, which rolls back what is open on it.
func (c *conn) end() {
	if !c.gone {
		c.gone = true
		_ = c.base.Close() // the peer is not asked
		c.p.disown(c)
	}
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
	p := c.p
	switch {
	case p.dead.Load():
		c.end()
		return errDead
	case c.gone:
		return driver.ErrBadConn
	}
	s := describe(text)
	s.text = text
	if s.kind == begins {
		c.in, c.wrote, c.dirty = true, false, false
	}
	// What takes effect only with a later COMMIT has not done so when the answer
	// is lost: to be cut after it is to be cut before the next one.
	lasting := s.kind == commits && c.wrote || s.kind == writes && !c.in
	fault := p.r.at(p, callOf(ctx).point(s), lasting)
	if fault == killBefore || fault == cutBefore {
		return c.strike(fault)
	}
	n, err := statement()
	if err == nil && n > 0 && s.kind == writes {
		c.wrote = true
		c.dirty = c.dirty || s.matters
	}
	if err == nil && lasting && c.dirty {
		p.r.moved()
	}
	if s.kind == ends || s.kind == commits && err == nil || s.kind == writes && !c.in {
		c.in, c.wrote, c.dirty = false, false, false
	}
	switch {
	case fault == none:
	case err == nil:
		return c.strike(fault)
	default:
		p.r.missed() // it took no effect: the next one of its kind will do
	}
	if p.dead.Load() {
		c.end()
		return errDead
	}
	return err
}

func (c *conn) strike(f fault) error {
	c.end()
	if f == killBefore || f == killAfter {
		c.p.kill()
		return errDead
	}
	return errCut
}

// statement kinds.
const (
	reads = iota
	writes
	begins
	commits
	ends
)

type statement struct {
	text    string
	kind    int
	name    string
	matters bool // what it changes is more than a renewal of what was there
}

var (
	change = regexp.MustCompile(`\b(INSERT INTO|DELETE FROM|UPDATE)\s+"?postrider_(\w+)`)
	source = regexp.MustCompile(`\b(?:FROM|JOIN)\s+"?postrider_(\w+)`)
)

// describe names a statement by what it does to which table.
func describe(text string) statement {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	word = strings.TrimSuffix(word, ";")
	switch word {
	case "BEGIN":
		return statement{kind: begins, name: word}
	case "COMMIT":
		return statement{kind: commits, name: word}
	case "ROLLBACK":
		return statement{kind: ends, name: word}
	}
	if m := change.FindAllStringSubmatch(text, -1); m != nil {
		verb, _, _ := strings.Cut(m[0][1], " ")
		table := m[0][2]
		s := statement{kind: writes, name: verb + " " + table, matters: table != "relays"}
		for _, more := range m[1:] {
			s.name += "+" + more[2]
			s.matters = true
		}
		return s
	}
	if m := source.FindStringSubmatch(text); m != nil {
		word += " " + m[1]
	} else if strings.Contains(text, "clock_timestamp") || strings.Contains(text, "julianday") || strings.Contains(text, "unixepoch") {
		word += " clock"
	}
	if strings.Contains(text, "FOR UPDATE") || strings.Contains(text, "FOR SHARE") {
		word += " locked"
	}
	return statement{kind: reads, name: word}
}

// call is one call of the store's; its statements are named after it.
type call struct {
	name string
	seen map[string][]string // texts by name
}

type callKey struct{}

func inCall(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callKey{}, &call{name, map[string][]string{}})
}

func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{"open or close", map[string][]string{}}
}

// point names a statement of the call; the second text of its kind differs from
// the first.
func (c *call) point(s statement) string {
	texts := c.seen[s.name]
	i := slices.Index(texts, s.text)
	if i < 0 {
		i = len(texts)
		c.seen[s.name] = append(texts, s.text)
	}
	if i == 0 {
		return c.name + "/" + s.name
	}
	return c.name + "/" + s.name + "." + strconv.Itoa(i+1)
}

// tapped is the store as the relay sees it: the real one, with the name of each
// call in its context.
type tapped struct {
	*sqlstore.Store
	p *process
}

func (s tapped) Routes(ctx context.Context) ([]outbox.Route, error) {
	return s.Store.Routes(inCall(ctx, "routes"))
}

func (s tapped) ParkedKeys(ctx context.Context, lanes []outbox.Lane) ([]outbox.ParkedKey, error) {
	return s.Store.ParkedKeys(inCall(ctx, "parked keys"), lanes)
}

func (s tapped) MoveParked(ctx context.Context, leases []outbox.LaneLease, limit int) (int, []outbox.ParkedKey, error) {
	return s.Store.MoveParked(inCall(ctx, "move parked"), leases, limit)
}

func (s tapped) LaneSession(ctx context.Context, purpose string) (outbox.LaneSession, error) {
	ses, err := s.Store.LaneSession(inCall(ctx, "open "+purpose), purpose)
	if err != nil {
		return nil, err
	}
	return &session{ses, purpose, s.p, s.p.r.breach}, nil
}

type session struct {
	outbox.LaneSession
	purpose string
	p       *process
	breach  breach
}

func (s *session) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
	name := "acquire"
	if r.End {
		name = "end"
	}
	s.p.r.owns(s.p, r.Owner)
	g, err := s.LaneSession.AcquireLanes(inCall(ctx, name), r)
	if err == nil {
		s.p.r.granted(s.p, g)
	}
	return g, err
}

func (s *session) ReadLanes(ctx context.Context, rs []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
	name := s.purpose
	if len(rs) > 0 && rs[0].Keys != nil {
		name += " keys"
	}
	n, err := s.LaneSession.ReadLanes(inCall(ctx, name), rs, dst)
	if s.breach.afterRead != nil && err == nil {
		err = s.breach.afterRead(ctx, s.LaneSession, s.p.owner(), dst[:n])
	}
	return n, err
}

func (s *session) SweepLanes(ctx context.Context, rs []outbox.LaneRead, dst []outbox.LaneSpot) (int, error) {
	return s.LaneSession.SweepLanes(inCall(ctx, s.purpose), rs, dst)
}

func (s *session) SettleLanes(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
	if s.breach.beforeSettle != nil {
		if err := s.breach.beforeSettle(ctx, s.LaneSession, r); err != nil {
			return nil, err
		}
	}
	return s.LaneSession.SettleLanes(inCall(ctx, "settle"), r)
}

func (s *session) PromoteLanes(ctx context.Context, ls []outbox.LaneLease, dst []outbox.LaneRow) (int, time.Time, error) {
	return s.LaneSession.PromoteLanes(inCall(ctx, "promote"), ls, dst)
}
