package histories_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/postrider/postrider/outbox"
)

// kind is what a client did.
type kind uint8

const (
	claim kind = iota
	renew
	complete
	fail
	release
	readPending
	acquire // takes, renews and gives back lanes
	settle
	promote
	readLanes
)

// lease is a right to a lane that was granted once.
type lease struct {
	lane  outbox.Lane
	owner int
	epoch int64
}

// grant is what an acquisition said of one lane.
type grant struct {
	epoch, tried int64
	unclean      bool
	expiresIn    int64 // microseconds
}

// settlement is the outcome of one row, and its result.
type settlement struct {
	lane       outbox.Lane
	row        int
	epoch, pos int64
	outcome    outbox.SettleOutcome
	attempts   int
	attempt    bool
	retry      int64
	reason     string
	result     outbox.SettleResult
}

// seen is a row as a read or a promotion returned it.
type seen struct {
	lane     outbox.Lane
	pos      int64
	attempts int
	reason   string
	claimed  bool
}

// op is one call and its answer. Virtual instants are ticks; call, cut, ret and
// grantNow are microseconds of the server's clock.
type op struct {
	kind      kind
	client    int
	number    int // of all operations of the history
	call, cut int64
	ret       int64 // cut, or when an unanswered call had surely ended
	unknown   bool  // an error that leaves open what happened
	err       error

	row          int
	token        int
	now, expires int64
	retry        int64
	ok           bool

	lane  outbox.Lane // of a read
	rows  map[int]seen
	owner int

	want      int
	ttl       int64
	end       bool
	released  []lease
	unclean   bool // they are given back so
	ownerOver bool // outbox.ErrOwnerEnded
	grantNow  int64
	grants    map[outbox.Lane]grant

	settlements []settlement
	marks       []lease // lanes whose tried-to is raised to mark
	mark        int64
	promoted    []lease
}

func (o *op) reason() string { return fmt.Sprintf("failure %d", o.number) }

// history collects the operations of all clients.
type history struct {
	mu  sync.Mutex
	ops []*op
}

func (h *history) add(o *op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// place is what is known of a row before the history begins.
type place struct {
	number int
	id     outbox.ID
	lane   outbox.Lane
	keyed  bool
	pos    int64
}

// part is the share of a history that concerns one row, or one lane and the
// rows in it. Each part is checked for itself: an operation on several rows or
// lanes takes part in each with what it says of that one.
type part struct {
	name  string
	lane  outbox.Lane // 0: rows only
	rows  []place
	ops   []*op
	slack int64 // how far off the recorded times are, microseconds
}

// concerns tells whether the operation belongs into the part.
func (p *part) concerns(o *op) bool {
	has := func(row int) bool { return slices.ContainsFunc(p.rows, func(r place) bool { return r.number == row }) }
	switch o.kind {
	case acquire:
		return p.lane != 0
	case settle:
		return slices.ContainsFunc(o.settlements, func(t settlement) bool { return has(t.row) }) ||
			slices.ContainsFunc(o.marks, func(l lease) bool { return l.lane == p.lane })
	case promote:
		return slices.ContainsFunc(o.promoted, func(l lease) bool { return l.lane == p.lane })
	case readLanes:
		return o.lane == p.rows[0].lane
	case readPending:
		if o.lane == outbox.Unordered {
			return !p.rows[0].keyed
		}
		return o.lane == p.rows[0].lane
	}
	return has(o.row)
}

// maxPart bounds the operations of a part, so that the search ends.
const maxPart = 200

func (g *rig) byRow() (parts []*part) {
	for _, r := range g.rows {
		parts = append(parts, g.fill(&part{name: fmt.Sprintf("row %d", r.number), rows: []place{r}}))
	}
	return parts
}

func (g *rig) byLane() (parts []*part) {
	lanes := map[outbox.Lane]*part{}
	for _, r := range g.rows {
		p := lanes[r.lane]
		if p == nil {
			p = &part{name: fmt.Sprintf("lane %d", r.lane), lane: r.lane}
			lanes[r.lane] = p
			parts = append(parts, p)
		}
		p.rows = append(p.rows, r)
	}
	for _, p := range parts {
		g.fill(p)
	}
	return parts
}

func (g *rig) fill(p *part) *part {
	p.slack = g.slack
	for _, o := range g.history.ops {
		// A read without an answer says nothing.
		if read := o.kind == readPending || o.kind == readLanes; p.concerns(o) && !(read && o.unknown) {
			p.ops = append(p.ops, o)
		}
	}
	slices.SortFunc(p.ops, func(a, b *op) int { return cmp.Compare(a.call, b.call) })
	return p
}

// check looks for an order of the part's operations that the model allows. An
// unanswered call may have taken effect at any time until it had surely ended,
// which makes for many orders. Nearly always it was soon after the client gave
// up, and an order under that narrower condition is one under the wider too: so
// this is tried first.
func (p *part) check() (result porcupine.CheckResult, info porcupine.LinearizationInfo) {
	open := slices.ContainsFunc(p.ops, func(o *op) bool { return o.ret > o.cut })
	for _, soon := range []int64{20_000, 200_000, math.MaxInt64} {
		if !open && soon != math.MaxInt64 {
			continue
		}
		var list []porcupine.Operation
		for _, o := range p.ops {
			list = append(list, porcupine.Operation{ClientId: o.client, Input: o, Call: o.call, Return: o.cut + min(o.ret-o.cut, soon)})
		}
		limit := time.Minute
		if soon == math.MaxInt64 {
			limit = 3 * time.Minute
		}
		if result, info = porcupine.CheckOperationsVerbose(p.model(), list, limit); result == porcupine.Ok {
			break
		}
	}
	return result, info
}

// verify fails the test unless every part has an order.
func verify(t testing.TB, seed uint64, parts []*part) {
	t.Helper()
	for _, p := range parts {
		if len(p.ops) > maxPart {
			t.Errorf("seed %d: %s has %d operations, limit %d", seed, p.name, len(p.ops), maxPart)
			continue
		}
		if result, info := p.check(); result != porcupine.Ok {
			t.Errorf("seed %d: the history of %s is %s: no order of these operations obeys the contract\n%s", seed, p.name, result, p.report(info))
		}
	}
}

// rejected returns a part that has no order.
func rejected(parts []*part) *part {
	for _, p := range parts {
		if result, _ := p.check(); result == porcupine.Illegal {
			return p
		}
	}
	return nil
}

// report lists the operations by the time of their calls, with their place in
// the longest order that was found.
func (p *part) report(info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, list := range info.PartialLinearizationsOperations() {
		for _, l := range list {
			if len(l) > len(longest) {
				longest = l
			}
		}
	}
	at := map[*op]int{}
	model := p.model()
	s := model.Init()
	for i, o := range longest {
		at[o.Input.(*op)] = i + 1
		_, s = model.Step(s, o.Input, nil)
	}
	var b strings.Builder
	start := int64(math.MaxInt64)
	for _, o := range p.ops {
		start = min(start, o.call)
	}
	fmt.Fprintf(&b, "rows: ")
	for _, r := range p.rows {
		fmt.Fprintf(&b, " %d at lane %d position %d (keyed %t);", r.number, r.lane, r.pos, r.keyed)
	}
	fmt.Fprintf(&b, "\norder   client   call ms  return ms  operation (order: place in the longest valid one, %d of %d; - what did not fit)\n", len(longest), len(p.ops))
	for _, o := range p.ops {
		place, ret := "-", "open"
		if n := at[o]; n > 0 {
			place = fmt.Sprint(n)
		}
		if o.ret != math.MaxInt64 {
			ret = fmt.Sprintf("%.3f", float64(o.ret-start)/1000)
		}
		fmt.Fprintf(&b, "%5s   %6d  %9.3f  %9s  %s\n", place, o.client, float64(o.call-start)/1000, ret, p.describe(o, start))
	}
	fmt.Fprintf(&b, "after the longest valid order: %s\n", model.DescribeState(s))
	return b.String()
}

func (p *part) describe(o *op, start int64) string {
	answer := fmt.Sprint(o.ok)
	if o.unknown {
		answer = fmt.Sprintf("unknown (%v)", o.err)
	}
	switch o.kind {
	case claim, renew:
		return fmt.Sprintf("%s row %d token %d now %d expires %d -> %s", o.kind, o.row, o.token, o.now, o.expires, answer)
	case complete, release:
		return fmt.Sprintf("%s row %d token %d now %d -> %s", o.kind, o.row, o.token, o.now, answer)
	case fail:
		return fmt.Sprintf("fail row %d token %d now %d retry %d %q -> %s", o.row, o.token, o.now, o.retry, o.reason(), answer)
	case readPending, readLanes:
		text := fmt.Sprintf("%s lane %d now %d ->", o.kind, o.lane, o.now)
		for _, r := range p.rows {
			if s, ok := o.rows[r.number]; ok {
				text += fmt.Sprintf(" row %d (position %d, attempts %d, %q, claimed %t)", r.number, s.pos, s.attempts, s.reason, s.claimed)
			} else {
				text += fmt.Sprintf(" row %d absent", r.number)
			}
		}
		return text
	case acquire:
		text := fmt.Sprintf("acquire owner %d want %d TTL %d ms end %t", o.owner, o.want, o.ttl/1000, o.end)
		for _, l := range o.released {
			if l.lane == p.lane {
				text += fmt.Sprintf(" release epoch %d, unclean %t", l.epoch, o.unclean)
			}
		}
		switch g, held := o.grants[p.lane]; {
		case o.unknown:
			return text + " -> " + answer
		case o.ownerOver:
			return text + " -> owner has ended"
		case held:
			return fmt.Sprintf("%s -> at %.3f ms: held, epoch %d, tried to %d, unclean %t, for %d us", text, float64(o.grantNow-start)/1000, g.epoch, g.tried, g.unclean, g.expiresIn)
		}
		return fmt.Sprintf("%s -> at %.3f ms: not held", text, float64(o.grantNow-start)/1000)
	case settle:
		text := fmt.Sprintf("settle owner %d", o.owner)
		for _, m := range o.marks {
			if m.lane == p.lane {
				text += fmt.Sprintf(" [mark epoch %d to %d]", m.epoch, o.mark)
			}
		}
		for _, t := range o.settlements {
			if t.lane == p.rows[0].lane {
				text += fmt.Sprintf(" [row %d epoch %d position %d %s attempts %d+%t retry %d %q: %s]",
					t.row, t.epoch, t.pos, outcomeNames[t.outcome], t.attempts, t.attempt, t.retry, t.reason, resultNames[t.result])
			}
		}
		if o.unknown {
			text += " -> " + answer
		}
		return text
	case promote:
		text := "promote"
		for _, l := range o.promoted {
			if l.lane == p.lane {
				text += fmt.Sprintf(" owner %d epoch %d", l.owner, l.epoch)
			}
		}
		if o.unknown {
			return text + " -> " + answer
		}
		for _, r := range p.rows {
			if s, ok := o.rows[r.number]; ok {
				text += fmt.Sprintf(" -> row %d to position %d", r.number, s.pos)
			}
		}
		return text
	}
	return o.kind.String()
}

func (k kind) String() string {
	return [...]string{"claim", "renew", "complete", "fail", "release", "read pending", "acquire", "settle", "promote", "read lanes"}[k]
}

var (
	outcomeNames = [...]string{"none", "accepted", "failed", "dead", "park"}
	resultNames  = [...]string{"unanswered", "settled", "gone", "fenced"}
)
