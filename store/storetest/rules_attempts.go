package storetest

import (
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
)

// up and down settle the row's attempts alone.
func (o *owner) up(row outbox.LaneRow) outbox.Settlement {
	s := o.outcome(row, outbox.SettleCount)
	s.Reason = "sent alone"
	return s
}

func (o *owner) down(row outbox.LaneRow) outbox.Settlement {
	s := o.back(row, outbox.SettleCount)
	s.Reason = "never sent"
	return s
}

// back is an outcome that takes an attempt back.
func (o *owner) back(row outbox.LaneRow, out outbox.SettleOutcome) outbox.Settlement {
	s := o.outcome(row, out)
	s.Attempt, s.TakeBack = false, true
	return s
}

var attemptRules = []rule{
	{"P2_count_leaves_rows_in_place", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec(""), e.rec("")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		var before []outbox.LaneRow
		for _, r := range recs {
			before = append(before, e.row(r))
		}
		s := o.outcome(before[0], outbox.SettleFailed)
		s.RetryAt = e.now.Add(time.Hour)
		o.one("failed", s, outbox.Settled)
		e.equal("eligible", e.count(e.now), int64(3))
		o.one("count of a row that waits", o.up(e.row(recs[0])), outbox.Settled)
		o.one("count of an unkeyed row", o.up(before[2]), outbox.Settled)
		for i, want := range []int{2, 0, 1, 0} {
			row := e.row(recs[i])
			e.equal(fmt.Sprintf("place and attempts of row %d", i), fmt.Sprint(row.Lane, row.Pos, row.Record.Attempts), fmt.Sprint(before[i].Lane, before[i].Pos, want))
			if row.RetryAt.After(e.now) {
				e.Errorf("row %d waits until %v, want at once", i, row.RetryAt)
			}
		}
		e.equal("last error", e.row(recs[0]).Record.LastError, "sent alone")
		e.equal("eligible", e.count(e.now), int64(4))
		e.equal("order of the key", laneIDs(e.hot(outbox.LaneRead{Lane: before[0].Lane, Keys: [][]byte{[]byte("k")}})), inOrder(recs[:2]))
		e.same(recs[0])
		e.same(recs[2])
	}},
	{"P2_count_goes_up_and_down", needLanes, func(e *env) {
		for _, key := range []string{"k", ""} {
			r := e.put(key)
			o := e.owner()
			o.acquireAll()
			for step, want := range []int{1, 2, 1, 0} {
				s := o.up(e.row(r))
				if step > 1 {
					s = o.down(e.row(r))
				}
				o.one("settled", s, outbox.Settled)
				got := e.row(r).Record
				e.equal("attempts", got.Attempts, want)
				e.equal("last error", got.LastError, s.Reason)
			}
			s := o.up(e.row(r))
			s.Attempt = false
			o.one("settled without an attempt", s, outbox.Settled)
			e.equal("attempts", e.row(r).Record.Attempts, 0)
			o.end()
		}
	}},
	{"P2_count_is_harmless_when_repeated", needLanes, func(e *env) {
		for _, key := range []string{"k", ""} {
			r := e.put(key)
			o := e.owner()
			o.acquireAll()
			up := o.up(e.row(r))
			down := up
			down.Attempt, down.TakeBack, down.Attempts = false, true, 1
			e.equal("up twice in a call", o.settle(up, up), []outbox.SettleResult{outbox.Settled, outbox.Gone})
			o.one("up again", up, outbox.Gone)
			e.equal("attempts", e.row(r).Record.Attempts, 1)
			o.one("down", down, outbox.Settled)
			o.one("down again", down, outbox.Gone)
			e.equal("attempts", e.row(r).Record.Attempts, 0)
			down.Attempts = 7
			o.one("down from another count", down, outbox.Gone)
			e.equal("attempts", e.row(r).Record.Attempts, 0)
			o.end()
		}
	}},
	{"P2_count_is_fenced", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("")}
		e.enlist(recs...)
		a, b := e.owner(), e.owner()
		a.acquireAll()
		var ss []outbox.Settlement
		for _, r := range recs {
			o := a.up(e.row(r))
			a.one("settled", o, outbox.Settled)
			row := e.row(r)
			ss = append(ss, a.up(row), a.down(row))
		}
		a.end()
		b.acquireAll()
		for _, s := range ss {
			a.one("of the old owner", s, outbox.Fenced)
			s.Epoch = b.leases[s.Lane].Epoch
			a.one("under the new owner's epoch", s, outbox.Fenced)
		}
		for _, r := range recs {
			e.equal("attempts", e.row(r).Record.Attempts, 1)
			b.one("of the new owner", b.down(e.row(r)), outbox.Settled)
			e.equal("attempts", e.row(r).Record.Attempts, 0)
		}
	}},
	{"P2_failure_takes_an_attempt_back", needLanes, func(e *env) {
		// A row that was sent alone has its attempt committed before; the outcome
		// replaces it.
		for _, key := range []string{"k", ""} {
			r := e.put(key)
			o := e.owner()
			o.acquireAll()
			o.one("counted", o.up(e.row(r)), outbox.Settled)
			o.one("counted", o.up(e.row(r)), outbox.Settled)
			s := o.back(e.row(r), outbox.SettleFailed)
			s.RetryAt = e.now.Add(time.Hour)
			e.equal("failed, twice", o.settle(s, s), []outbox.SettleResult{outbox.Settled, outbox.Gone})
			o.one("failed again", s, outbox.Gone)
			e.equal("eligible", e.eligible(r, e.now), false)
			e.equal("attempts", e.lookup(r, e.now.Add(time.Hour)).Attempts, 1)
			o.end()
		}
	}},
	{"P2_dead_takes_an_attempt_back", needDead, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		for _, r := range recs {
			o.one("counted", o.up(e.row(r)), outbox.Settled)
			o.one("dead", o.back(e.row(r), outbox.SettleDead), outbox.Settled)
		}
		ds := e.listDead(outbox.DeadQuery{})
		e.equal("dead", len(ds), 2)
		for _, d := range ds {
			e.equal("attempts", d.Record.Attempts, 0)
			if d.FirstFailedAt.IsZero() {
				e.Errorf("dead letter %s never failed, though an attempt was counted", d.Record.ID)
			}
		}
	}},
	{"P2_parking_takes_an_attempt_back", needMover, func(e *env) {
		r := e.put("k")
		o := e.owner()
		o.acquireAll()
		o.one("counted", o.up(e.row(r)), outbox.Settled)
		o.one("parked", o.back(e.row(r), outbox.SettlePark), outbox.Settled)
		e.equal("parked", e.parkedKeys(), []string{"k parked"})
		e.unpark("k")
		o.moveParked(10)
		e.equal("attempts", e.row(r).Record.Attempts, 0)
	}},
	{"P4_count_leaves_a_row_aside", needMover, func(e *env) {
		// Counted before it is sent alone; then an operator parks its key.
		r := e.put("k")
		o := e.owner()
		o.acquireAll()
		row := e.row(r)
		o.one("counted", o.up(row), outbox.Settled)
		e.park("k")
		moved, _ := o.moveParked(10)
		e.equal("moved", moved, 1)
		row.Record.Attempts = 1
		o.one("taken back", o.down(row), outbox.Settled)
		e.equal("hot", e.isHot(r), false)
		rows, _ := o.promote()
		e.equal("promoted", len(rows), 0)
		e.equal("eligible", e.count(e.now.Add(time.Hour)), int64(0))
		e.unpark("k")
		moved, _ = o.moveParked(10)
		e.equal("brought back", moved, 1)
		e.equal("place and attempts", fmt.Sprint(e.row(r).Pos, e.row(r).Record.Attempts), fmt.Sprint(row.Pos, 0))
	}},
}
