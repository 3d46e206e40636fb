package histories_test

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/postrider/postrider/outbox"
)

// somewhere is the position of a row that a promotion of unknown outcome moved.
const somewhere = -1

// rowState is one row of the model. The zero value is an absent row.
type rowState struct {
	there    bool
	deferred bool // waits aside for a retry; unkeyed rows only
	pos      int64
	attempts int
	reason   string
	token    int // 0: no claim
	until    int64
	retry    int64 // 0: none
}

// eligible is contract R4 for the rows that the histories use.
func (r *rowState) eligible(now int64) bool {
	return r.there && !(r.token != 0 && r.until > now) && r.retry <= now
}

// holds is contract C6.
func (r *rowState) holds(token int, now int64) bool {
	return r.there && r.token == token && r.until > now
}

// window is until when an owner's leases hold, by the server's clock: between lo
// and hi if the renewal was not answered.
type window struct {
	owner  int
	lo, hi int64
	ended  bool
}

// neverLived owns a lane that was given back unclean.
const neverLived = -1

// state is one lane and its rows. Windows belong to owners, so each lane keeps
// its own copy.
type state struct {
	owner        int // 0: nobody, or neverLived
	epoch, tried int64
	unclean      bool
	windows      []window // by owner
	rows         []rowState
}

func (s *state) clone() *state {
	c := *s
	c.windows = slices.Clone(s.windows)
	c.rows = slices.Clone(s.rows)
	return &c
}

func (s *state) equal(o *state) bool {
	return s.owner == o.owner && s.epoch == o.epoch && s.tried == o.tried && s.unclean == o.unclean &&
		slices.Equal(s.windows, o.windows) && slices.Equal(s.rows, o.rows)
}

var hashSeed = maphash.MakeSeed()

func (s *state) hash() uint64 {
	h := maphash.Comparable(hashSeed, [...]int64{int64(s.owner), s.epoch, s.tried, int64(len(s.windows))})
	for _, w := range s.windows {
		h = h*31 + maphash.Comparable(hashSeed, w)
	}
	for _, r := range s.rows {
		h = h*31 + maphash.Comparable(hashSeed, r)
	}
	return h
}

// window finds or makes the owner's window.
func (s *state) window(owner int) (w *window, known bool) {
	i, known := slices.BinarySearchFunc(s.windows, owner, func(w window, o int) int { return cmp.Compare(w.owner, o) })
	if !known {
		return &window{owner: owner}, false
	}
	return &s.windows[i], true
}

func (s *state) setWindow(w window) {
	i, known := slices.BinarySearchFunc(s.windows, w.owner, func(w window, o int) int { return cmp.Compare(w.owner, o) })
	if !known {
		s.windows = slices.Insert(s.windows, i, w)
	}
	s.windows[i] = w
}

// model is the contract as the part sees it. Where the recorded times or a lost
// answer leave open what happened, a step has several next states.
func (p *part) model() porcupine.Model {
	nm := porcupine.NondeterministicModel{
		Init: func() []any {
			s := &state{}
			for _, r := range p.rows {
				s.rows = append(s.rows, rowState{there: true, pos: r.pos})
			}
			return []any{s}
		},
		Step: func(s, input, _ any) (next []any) {
			for _, n := range p.step(s.(*state), input.(*op)) {
				next = append(next, n)
			}
			return next
		},
		Equal:         func(a, b any) bool { return a.(*state).equal(b.(*state)) },
		Hash:          func(s any) uint64 { return s.(*state).hash() },
		DescribeState: func(s any) string { return fmt.Sprintf("%+v", *s.(*state)) },
	}
	return nm.ToModel()
}

// index is where the part keeps the row, or -1.
func (p *part) index(row int) int {
	return slices.IndexFunc(p.rows, func(r place) bool { return r.number == row })
}

// step returns the states after the operation; none if the answer is wrong in
// this one.
func (p *part) step(s *state, o *op) []*state {
	switch o.kind {
	case readPending, readLanes:
		return p.read(s, o)
	case acquire:
		if o.unknown {
			return append(p.acquireUnanswered(s, o), s)
		}
		return p.acquireAnswered(s, o)
	case settle:
		return p.settle(s, o)
	case promote:
		return p.promote(s, o)
	}
	i := p.index(o.row)
	r := &s.rows[i]
	var can, cannot bool
	switch o.kind {
	case claim:
		// The lease is judged by the server's clock at some moment of the call.
		w, _ := s.window(s.owner)
		free := s.owner == 0 || w.ended || o.cut >= w.lo-p.slack
		leased := s.owner != 0 && !w.ended && o.call < w.hi+p.slack
		can = r.eligible(o.now) && free
		cannot = !r.eligible(o.now) || leased
	default:
		can = r.holds(o.token, o.now)
		cannot = !can
	}
	var next []*state
	if can && (o.ok || o.unknown) {
		n := s.clone()
		p.change(&n.rows[i], o, p.rows[i].keyed)
		next = append(next, n)
	}
	if o.unknown || cannot && !o.ok {
		next = append(next, s)
	}
	return next
}

func (p *part) change(r *rowState, o *op, keyed bool) {
	switch o.kind {
	case claim:
		r.token, r.until = o.token, o.expires
	case renew:
		r.until = max(r.until, o.expires)
	case complete:
		*r = rowState{}
	case fail:
		r.attempts++
		r.reason, r.retry = o.reason(), o.retry
		r.token, r.until = 0, 0
		r.deferred = !keyed
	case release:
		r.token, r.until = 0, 0
	}
}

// read compares what was seen. Claims end in a virtual time that lies ahead of
// the server's, so the lane's owner sees every claim that was not given back.
func (p *part) read(s *state, o *op) []*state {
	n := s
	for i := range p.rows {
		r := &s.rows[i]
		got, found := o.rows[p.rows[i].number]
		visible := r.there && !r.deferred
		if o.kind == readPending {
			visible = r.eligible(o.now)
		}
		if found != visible || found && (got.attempts != r.attempts || got.reason != r.reason) {
			return nil
		}
		if !found || o.kind == readPending {
			continue
		}
		if got.claimed != (r.token != 0) || got.pos != r.pos && r.pos != somewhere {
			return nil
		}
		if r.pos == somewhere {
			if n == s {
				n = s.clone()
			}
			n.rows[i].pos = got.pos
		}
	}
	return []*state{n}
}

// acquireAnswered is schema "Leases": the owner's window is renewed if it is
// open, what was given back is free, and a lane that the grant names was the
// owner's or is taken now under the next epoch.
func (p *part) acquireAnswered(s *state, o *op) []*state {
	w, known := s.window(o.owner)
	if o.ownerOver {
		if known && (w.ended || o.cut >= w.lo-p.slack) {
			return []*state{s}
		}
		return nil
	}
	if known && (w.ended || o.grantNow >= w.hi) {
		return nil
	}
	lo, hi := max(w.lo, o.grantNow+o.ttl), max(w.hi, o.grantNow+o.ttl)
	for _, g := range o.grants {
		exact := o.grantNow + g.expiresIn
		if exact < lo || exact > hi {
			return nil
		}
		lo, hi = exact, exact
	}
	n := s.clone()
	n.setWindow(window{o.owner, lo, hi, o.end})
	p.giveBack(n, o)
	g, held := o.grants[p.lane]
	switch {
	case held != (n.owner == o.owner) && !held, held && o.end:
		return nil
	case !held:
		return []*state{n}
	case n.owner != o.owner:
		old, _ := n.window(n.owner)
		if o.want == 0 || n.owner != 0 && !old.ended && o.grantNow < old.lo {
			return nil
		}
		p.take(n, o)
	}
	if n.epoch != g.epoch || n.tried != g.tried || n.unclean != g.unclean {
		return nil
	}
	return []*state{n}
}

// acquireUnanswered are the states if the call has committed.
func (p *part) acquireUnanswered(s *state, o *op) (next []*state) {
	w, known := s.window(o.owner)
	early, late := o.call-p.slack, o.cut+p.slack
	if known && (w.ended || early >= w.hi) {
		return nil
	}
	n := s.clone()
	n.setWindow(window{o.owner, max(w.lo, early+o.ttl), max(w.hi, late+o.ttl), o.end})
	p.giveBack(n, o)
	next = append(next, n)
	if o.end || o.want == 0 || n.owner == o.owner {
		return next
	}
	if old, _ := n.window(n.owner); n.owner == 0 || old.ended || late >= old.lo {
		n = n.clone()
		p.take(n, o)
		next = append(next, n)
	}
	return next
}

func (p *part) giveBack(s *state, o *op) {
	if s.owner != o.owner {
		return
	}
	named := slices.Contains(o.released, lease{p.lane, o.owner, s.epoch})
	switch {
	case named && o.unclean:
		s.owner, s.unclean = neverLived, false
		s.epoch++
	case named || o.end:
		s.owner, s.unclean = 0, false
	}
}

func (p *part) take(s *state, o *op) {
	s.unclean = s.owner != 0
	if s.owner != 0 {
		old, _ := s.window(s.owner)
		old.ended = true
	}
	s.owner = o.owner
	s.epoch++
}

// settle is all or nothing. Accepted rows go without a fence, and first.
func (p *part) settle(s *state, o *op) (next []*state) {
	states := []*state{s.clone()}
	for _, accepted := range []bool{true, false} {
		for i := range o.settlements {
			t := &o.settlements[i]
			if t.lane != p.rows[0].lane || (t.outcome == outbox.SettleAccepted) != accepted {
				continue
			}
			var after []*state
			for _, n := range states {
				after = append(after, p.settleOne(n, o, t)...)
			}
			states = after
		}
	}
	for _, n := range states {
		for _, m := range o.marks {
			if m.lane == p.lane && n.owner == m.owner && n.epoch == m.epoch {
				n.tried = max(n.tried, o.mark)
			}
		}
	}
	if o.unknown {
		states = append(states, s)
	}
	return states
}

func (p *part) settleOne(s *state, o *op, t *settlement) (next []*state) {
	i := p.index(t.row)
	answered := func(n *state, r outbox.SettleResult) {
		if o.unknown || t.result == r {
			next = append(next, n)
		}
	}
	r := &s.rows[i]
	if t.outcome != outbox.SettleAccepted {
		if s.owner != o.owner || s.epoch != t.epoch {
			answered(s, outbox.Fenced)
			return next
		}
		if r.attempts != t.attempts {
			answered(s, outbox.Gone)
			return next
		}
	}
	if !r.there || r.pos != t.pos {
		answered(s, outbox.Gone)
	}
	if !r.there || r.pos != t.pos && r.pos != somewhere {
		return next
	}
	n := s.clone()
	r = &n.rows[i]
	switch t.outcome {
	case outbox.SettleFailed:
		r.pos, r.reason, r.retry = t.pos, t.reason, t.retry
		r.deferred = !p.rows[i].keyed
		if t.attempt {
			r.attempts++
		}
	default:
		*r = rowState{}
	}
	answered(n, outbox.Settled)
	return next
}

// promote moves some of the rows that are due by the server's clock: those
// without a retry time and without a claim. A row that another call has locked
// may stay.
func (p *part) promote(s *state, o *op) (next []*state) {
	held := slices.Contains(o.promoted, lease{p.lane, s.owner, s.epoch})
	due := func(r *rowState) bool { return held && r.there && r.deferred && r.retry == 0 && r.token == 0 }
	if !o.unknown {
		n := s.clone()
		for i := range p.rows {
			got, found := o.rows[p.rows[i].number]
			r := &n.rows[i]
			if !found {
				continue
			}
			if !due(r) || got.attempts != r.attempts || got.reason != r.reason {
				return nil
			}
			r.deferred, r.pos = false, got.pos
		}
		return []*state{n}
	}
	next = []*state{s}
	for i := range p.rows {
		for _, n := range slices.Clone(next) {
			if due(&n.rows[i]) {
				n = n.clone()
				n.rows[i].deferred, n.rows[i].pos = false, somewhere
				next = append(next, n)
			}
		}
	}
	return next
}
