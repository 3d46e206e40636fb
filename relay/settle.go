package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// The most outcomes in one settle. From about twice settleRows PostgreSQL scans
// the table. Where transactions come one at a time they are larger: what rows have
// in common, pages above all, is written once for all of them.
const (
	settleRows     = 1000
	settleRowsSole = 2048
)

// mostRefused is how many rows may be refused alone, one after the other, before
// it is the database's refusal and not theirs.
const mostRefused = 10

// settler writes outcomes, many at once.
type settler struct {
	loop
	e        *engine
	limit    int                 // settleRows, or settleRowsSole
	most     int                 // outcomes in the next statement
	renews   int                 // the engine's count at the last failure
	rested   bool                // it has lingered since the last one
	aside    []*row              // refused by the database, each alone
	retry    time.Time           // when the first of them is tried again
	probing  bool                // the call under way tries one of them
	failures int                 // of those, since the last success
	refusals int                 // of rows alone or of marks, since rows were last written
	list     []outbox.Settlement // memory of the call under way
}

func newSettler(e *engine) *settler {
	limit := settleRows
	if commitsInOrder(e.store) {
		limit = settleRowsSole
	}
	return &settler{loop: newLoop("settle"), e: e, limit: limit, most: limit}
}

func (s *settler) next() (*call, wait) {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := len(e.core.outbox)
	marked, urgent := e.core.marks(), e.core.urgent()
	batch := s.takeAside()
	s.probing = len(batch) > 0
	if !s.probing {
		if waiting == 0 && len(marked) == 0 {
			w := time.Hour
			if len(s.aside) > 0 {
				w = time.Until(s.retry)
			}
			return nil, wait{d: w}
		}
		if waiting < settleRows/4 && !s.rested && !e.fast && !urgent {
			s.rested = true
			return nil, wait{linger, true}
		}
		s.rested = false
		batch = e.core.takeOutcomes(s.most)
	}
	s.list = s.list[:0]
	for _, r := range batch {
		s.list = append(s.list, r.out)
	}
	req := outbox.SettleRequest{Owner: e.window.owner, Settlements: s.list}
	for _, l := range marked {
		req.TriedTo = append(req.TriedTo, outbox.LaneMark{Lane: l.lease.Lane, Epoch: l.lease.Epoch, Pos: l.want})
	}
	if len(batch)+len(marked) == 0 {
		return nil, wait{}
	}
	var results []outbox.SettleResult
	return &call{
		timeout: callTimeout,
		do: func(ctx context.Context, ls outbox.LaneStore) (err error) {
			results, err = ls.SettleLanes(ctx, req)
			if err == nil && len(results) != len(batch) {
				err = fmt.Errorf("store returned %d results for %d settlements", len(results), len(batch))
			}
			return err
		},
		end: func(err error) {
			if err != nil {
				s.failed(batch, err)
			} else {
				s.written(batch, &req, results, marked)
			}
		},
	}, wait{}
}

// failed puts the outcomes back: they may have been written, and repeating them
// is harmless. If the database refused them, or renewals succeed meanwhile, it is
// not the connection: the row at fault is found by halves and set aside. Where row
// after row is refused, or tried_to without any, a right is missing or worse:
// nothing gets on, as when the database is lost, and it is told as that.
func (s *settler) failed(batch []*row, err error) {
	e := s.e
	e.mu.Lock()
	refused := errors.Is(err, outbox.ErrRefused)
	if refused && len(batch) <= 1 {
		s.refusals++
	}
	all := refused && (len(batch) == 0 || s.refusals > mostRefused)
	outage := !refused && s.renews == e.renews
	s.renews = e.renews
	switch {
	case outage:
		e.core.outbox = append(batch, e.core.outbox...)
	case len(batch) == 1:
		s.setAside(batch[0])
	default:
		s.most = max(len(batch)/2, 1)
		e.core.outbox = append(batch, e.core.outbox...)
	}
	e.core.seen[evRefused]++
	e.mu.Unlock()
	switch {
	case all:
		e.lost(s.purpose, err)
	case !outage && len(batch) == 1 && !batch[0].refused:
		batch[0].refused = true
		e.trouble(fmt.Errorf("settle of message %s: %w", batch[0].Record.ID, err))
	}
}

// setAside keeps a row whose outcome is refused, to be tried again later.
func (s *settler) setAside(r *row) {
	s.aside = append(s.aside, r)
	s.failures++
	s.retry = time.Now().Add(jitter(s.e.core.draw, time.Second, time.Minute, s.failures))
}

// takeAside is the row set aside first, when it is time. The others wait for its
// success.
func (s *settler) takeAside() []*row {
	if len(s.aside) == 0 || time.Now().Before(s.retry) && !s.e.fast {
		return nil
	}
	r := s.aside[0]
	s.aside = s.aside[1:]
	s.e.core.outbox = append([]*row{r}, s.e.core.outbox...)
	return s.e.core.takeOutcomes(1)
}

func (s *settler) written(batch []*row, req *outbox.SettleRequest, results []outbox.SettleResult, marked []*lane) {
	e := s.e
	var lost []outbox.LaneLease
	e.mu.Lock()
	s.most = min(s.most*2, s.limit)
	found := len(batch) > 0 && s.refusals > mostRefused
	if len(batch) > 0 {
		s.refusals = 0
	}
	if s.probing {
		e.core.outbox = append(e.core.outbox, s.aside...)
		s.aside, s.failures = nil, 0
	}
	now := e.now()
	for i, l := range marked {
		if !l.closed() {
			e.core.triedTo(l, req.TriedTo[i].Pos, now)
		}
	}
	for i, r := range batch {
		if e.core.settled(r, results[i], now) {
			l := r.lane
			e.core.fenced[l.lease.Lane] = l.lease.Epoch
			e.core.drop(l)
			lost = append(lost, l.lease)
		}
	}
	drained := e.core.drained()
	e.kickSenders()
	e.mu.Unlock()
	if found {
		e.state.set(s.purpose, nil)
	}
	for i, r := range batch {
		// Not r.out: a counted row may be on its way again.
		e.opt.Hooks.settled(r, &req.Settlements[i], results[i])
	}
	e.leasesLost(lost, "an outcome was fenced")
	if drained || len(lost) > 0 {
		e.lease.signal()
	}
	e.read.signal() // there is room, and keys may be due
}

func (h *Hooks) settled(r *row, o *outbox.Settlement, res outbox.SettleResult) {
	route, keyed := r.lane.route.name, r.key != nil
	switch {
	case res == outbox.Fenced:
		if h.Fenced != nil {
			h.Fenced(route, o.ID)
		}
	case res != outbox.Settled:
	case o.Outcome == outbox.SettlePark && keyed:
		if h.Parked != nil {
			h.Parked(route, []byte(r.key.name), o.ID, o.Reason)
		}
	case o.Outcome == outbox.SettleDead || o.Outcome == outbox.SettlePark:
		if h.Dead != nil {
			h.Dead(route, o.ID, o.Reason)
		}
	}
}

// marks lists the lanes whose tried_to is to be raised.
func (c *core) marks() (ls []*lane) {
	for _, l := range c.list {
		if l.want > l.tried && !l.closed() {
			ls = append(ls, l)
		}
	}
	return ls
}

// urgent tells whether something waits for a raise of tried_to, or for a solo
// send's attempt.
func (c *core) urgent() bool {
	return c.solo != nil && c.solo.state == rowSettling ||
		slices.ContainsFunc(c.list, func(l *lane) bool { return len(l.untried) > 0 && !l.closed() })
}
