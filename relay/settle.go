package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
)

// settleRows is the most outcomes in one statement; from about twice as many
// PostgreSQL scans the table.
const settleRows = 1000

// settler writes outcomes, many at once.
type settler struct {
	loop
	e      *engine
	most   int                 // outcomes in the next statement
	renews int                 // the engine's count at the last failure
	rested bool                // it has lingered since the last one
	list   []outbox.Settlement // memory of the call under way
}

func (s *settler) next() (*call, wait) {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := len(e.core.outbox)
	marked, urgent := e.core.marks()
	if waiting == 0 && len(marked) == 0 {
		return nil, wait{d: time.Hour}
	}
	if waiting < settleRows/4 && !s.rested && !e.fast && !urgent {
		s.rested = true
		return nil, wait{linger, true}
	}
	s.rested = false
	batch := e.core.takeOutcomes(s.most)
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
// is harmless. If renewals succeed meanwhile, it is not the connection: a row
// that the database refuses is found by halves; alone, it goes behind the
// others.
func (s *settler) failed(batch []*row, err error) {
	e := s.e
	e.mu.Lock()
	outage := s.renews == e.renews
	s.renews = e.renews
	alone := len(batch) == 1 && !outage
	if !outage {
		s.most = max(s.most/2, 1)
	}
	e.core.seen[evRefused]++
	if alone {
		e.core.outbox = append(e.core.outbox, batch[0])
	} else {
		e.core.outbox = append(batch, e.core.outbox...)
	}
	e.mu.Unlock()
	if alone {
		e.trouble(fmt.Errorf("settle of message %s: %w", batch[0].Record.ID, err))
	}
}

func (s *settler) written(batch []*row, req *outbox.SettleRequest, results []outbox.SettleResult, marked []*lane) {
	e := s.e
	var lost []outbox.LaneLease
	e.mu.Lock()
	s.most = min(s.most*2, settleRows)
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

// marks lists the lanes whose tried_to is to be raised; urgent: something waits
// for it, or for a solo send's attempt.
func (c *core) marks() (ls []*lane, urgent bool) {
	for _, l := range c.list {
		if l.want > l.tried && !l.closed() {
			ls = append(ls, l)
			urgent = urgent || len(l.untried) > 0
		}
	}
	return ls, urgent || c.solo != nil && c.solo.state == rowSettling
}
