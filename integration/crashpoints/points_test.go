//go:build prove

package crashpoints_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/outbox"
)

var (
	errCut  = errors.New("connection reset by peer")
	errDead = errors.New("this process was killed")
)

// line is one connection of a relay process to its database, of whatever library.
type line struct {
	p    *process
	hang func() // closes the engine's connection, which rolls back what is open on it

	mu    sync.Mutex
	gone  bool // cut, or its process was killed
	in    bool // inside a transaction
	wrote bool // which has changed something
	dirty bool // other than to renew what was there
}

func (c *line) end() {
	if !c.gone {
		c.gone = true
		c.hang()
		c.p.disown(c)
	}
}

// pass takes one statement past its point, under the lock: before and after the
// engine has it. run tells how many rows it changed or returned.
func (c *line) pass(k *call, s statement, run func() (int64, error)) error {
	p := c.p
	switch {
	case p.dead.Load():
		c.end()
		return errDead
	case c.gone:
		return driver.ErrBadConn
	}
	if s.kind == begins {
		c.in, c.wrote, c.dirty = true, false, false
	}
	// What takes effect only with a later COMMIT has not done so when the answer
	// is lost: to be cut after it is to be cut before the next one.
	lasting := s.kind == commits && c.wrote || s.kind == writes && !c.in
	fault := p.r.at(p, k.point(s), lasting)
	if fault == killBefore || fault == cutBefore {
		return c.strike(fault)
	}
	n, err := run()
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

func (c *line) strike(f fault) error {
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
	change = regexp.MustCompile("\\b(INSERT INTO|DELETE FROM|UPDATE)\\s+[\"`]?postrider_(\\w+)")
	source = regexp.MustCompile("\\b(?:FROM|JOIN|STRAIGHT_JOIN)\\s+[\"`]?postrider_(\\w+)")
	// Of MySQL: what is changed is joined to the rows that say how.
	joined = regexp.MustCompile("(?s)^(?:UPDATE|DELETE \\w FROM) \\(SELECT .* STRAIGHT_JOIN `postrider_(\\w+)`")
)

// describe names a statement by what it does to which table.
func describe(text string) statement {
	word, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), "-- "), " ")
	word = strings.Trim(word, "(;")
	switch word {
	case "BEGIN", "START":
		return statement{text: text, kind: begins, name: word}
	case "COMMIT":
		return statement{text: text, kind: commits, name: word}
	case "ROLLBACK":
		return statement{text: text, kind: ends, name: word}
	}
	if m := change.FindAllStringSubmatch(text, -1); m != nil {
		verb, _, _ := strings.Cut(m[0][1], " ")
		table := m[0][2]
		s := statement{text: text, kind: writes, name: verb + " " + table, matters: table != "relays"}
		for _, more := range m[1:] {
			s.name += "+" + more[2]
			s.matters = true
		}
		return s
	}
	if m := joined.FindStringSubmatch(text); m != nil {
		return statement{text: text, kind: writes, name: word + " " + m[1], matters: m[1] != "relays"}
	}
	if m := source.FindStringSubmatch(text); m != nil {
		word += " " + m[1]
	} else if strings.Contains(text, "clock_timestamp") || strings.Contains(text, "julianday") || strings.Contains(text, "unixepoch") || strings.Contains(text, "UTC_TIMESTAMP") {
		word += " clock"
	}
	if strings.Contains(text, "FOR UPDATE") || strings.Contains(text, "FOR SHARE") || strings.Contains(text, "LOCK IN SHARE MODE") {
		word += " locked"
	}
	return statement{text: text, kind: reads, name: word}
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
	stores.Store
	p *process
}

// CommitsInOrder implements outbox.CommitOrder.
func (s tapped) CommitsInOrder() bool {
	o, ok := s.Store.(outbox.CommitOrder)
	return ok && o.CommitsInOrder()
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
