package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// outcome settles the row under the owner's lease; a failure counts as an
// attempt.
func (o *owner) outcome(row outbox.LaneRow, out outbox.SettleOutcome) outbox.Settlement {
	s := outbox.Settlement{
		Lane: row.Lane, Epoch: o.leases[row.Lane].Epoch, Pos: row.Pos, ID: row.Record.ID, Outcome: out, Attempts: row.Record.Attempts,
		Hint: row.Hint, Config: o.leases[row.Lane].Config,
	}
	if out != outbox.SettleAccepted {
		s.Attempt, s.Reason = true, "refused"
	}
	return s
}

func (o *owner) settle(ss ...outbox.Settlement) []outbox.SettleResult {
	o.e.Helper()
	res, err := o.store.SettleLanes(o.e.ctx, outbox.SettleRequest{Owner: o.id, Settlements: ss})
	o.e.ok(err)
	o.e.equal("results", len(res), len(ss))
	return res
}

// one settles one row and checks the result.
func (o *owner) one(what string, s outbox.Settlement, want outbox.SettleResult) {
	o.e.Helper()
	o.e.equal(what, o.settle(s)[0], want)
}

// promote moves everything that is due.
func (o *owner) promote() (rows []outbox.LaneRow, next time.Time) {
	o.e.Helper()
	dst := make([]outbox.LaneRow, 100)
	n, next, err := o.store.PromoteLanes(o.e.ctx, o.list(), dst)
	o.e.ok(err)
	return dst[:n], next
}

var settleRules = []rule{
	{"P2_accepted_rows_are_deleted", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec(""), e.rec("k")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		s := []outbox.Settlement{o.outcome(e.row(recs[0]), outbox.SettleAccepted), o.outcome(e.row(recs[1]), outbox.SettleAccepted)}
		e.equal("settled", o.settle(s...), []outbox.SettleResult{outbox.Settled, outbox.Settled})
		e.equal("repeated", o.settle(s...), []outbox.SettleResult{outbox.Gone, outbox.Gone})
		e.equal("rows", ids(e.pending(e.now)), ids(recs[2:]))
	}},
	{"P2_only_named_rows_are_settled", needLanes, func(e *env) {
		// Batches of which a part is answered: the rest stays, whatever it lies
		// beside.
		var recs []outbox.Record
		for i := range 60 {
			recs = append(recs, e.rec([]string{"", "a", "b"}[i%3]))
		}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		left := slices.Clone(recs)
		for step := 2; len(left) > 3; step++ {
			var ss []outbox.Settlement
			var kept []outbox.Record
			for i, r := range left {
				if i%step == 0 {
					ss = append(ss, o.outcome(e.row(r), outbox.SettleAccepted))
				} else {
					kept = append(kept, r)
				}
			}
			o.settle(ss...)
			left = kept
			e.equal(fmt.Sprintf("rows after step %d", step), ids(e.pending(e.now)), ids(left))
		}
	}},
	{"P2_settling_names_lane_position_and_id", needLanes, func(e *env) {
		r := e.put("k")
		o := e.owner()
		o.acquireAll()
		good := o.outcome(e.row(r), outbox.SettleAccepted)
		for name, set := range map[string]func(*outbox.Settlement){
			"position": func(s *outbox.Settlement) { s.Pos++ }, "lower position": func(s *outbox.Settlement) { s.Pos-- }, "id": func(s *outbox.Settlement) { s.ID = outbox.NewID() },
			"lane": func(s *outbox.Settlement) {
				s.Lane = s.Lane%outbox.Lane(len(o.leases)) + 1
				s.Epoch = o.leases[s.Lane].Epoch
			},
		} {
			for _, out := range []outbox.SettleOutcome{outbox.SettleAccepted, outbox.SettleFailed, outbox.SettleDead, outbox.SettlePark, outbox.SettleCount} {
				s := good
				s.Outcome, s.Reason = out, "refused"
				set(&s)
				o.one(fmt.Sprintf("outcome %d under another %s", out, name), s, outbox.Gone)
			}
		}
		a, b := good, o.outcome(e.row(e.put("k")), outbox.SettleAccepted)
		a.ID, b.ID = b.ID, a.ID
		e.equal("each under the id of the other", o.settle(a, b), []outbox.SettleResult{outbox.Gone, outbox.Gone})
		e.same(r)
		o.one("settled", good, outbox.Settled)
	}},
	{"P2_a_hint_may_be_out_of_date", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		var ss []outbox.Settlement
		for _, r := range recs[:3] {
			ss = append(ss, o.outcome(e.row(r), outbox.SettleAccepted))
		}
		o.one("failed since", o.outcome(e.row(recs[0]), outbox.SettleFailed), outbox.Settled)
		ss[1].Hint, ss[2].Hint = ss[2].Hint, 1<<47|1 // another row's, and nobody's
		e.equal("settled", o.settle(ss...), []outbox.SettleResult{outbox.Settled, outbox.Settled, outbox.Settled})
		e.equal("rows", laneIDs(e.hot(outbox.LaneRead{Lane: e.laneOf("k")})), inOrder(recs[3:]))
		e.equal("settled again", o.settle(ss...), []outbox.SettleResult{outbox.Gone, outbox.Gone, outbox.Gone})
	}},
	{"P4_repeated_park_does_not_undo_an_unpark", needParker, func(e *env) {
		r := e.put("k")
		o := e.owner()
		o.acquireAll()
		s := o.outcome(e.row(r), outbox.SettlePark)
		s.Attempt = false
		o.one("parked", s, outbox.Settled)
		e.equal("repeated", o.settle(s), []outbox.SettleResult{outbox.Settled}) // its key is parked
		ok, err := e.parker().UnparkKey(e.ctx, e.fix.route, []byte("k"), "test")
		e.ok(err)
		e.equal("unparked", ok, true)
		o.one("repeated after the unpark", s, outbox.Gone)
		parked, err := e.parker().ParkedKeys(e.ctx, []outbox.Lane{s.Lane})
		e.ok(err)
		for _, k := range parked {
			if string(k.Key) == "k" && !k.Unparking {
				e.Errorf("the key is parked again by a repeated settle: %+v", k)
			}
		}
	}},
	{"P2_failed_keyed_row_stays_at_the_head_of_its_key", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		before := e.row(recs[0])
		s := o.outcome(before, outbox.SettleFailed)
		s.RetryAt = e.now.Add(time.Hour)
		o.one("settled", s, outbox.Settled)
		rows := e.hot(outbox.LaneRead{Lane: before.Lane})
		e.equal("rows", laneIDs(rows), inOrder(recs))
		e.equal("position", rows[0].Pos, before.Pos)
		e.equal("attempts", rows[0].Record.Attempts, 1)
		e.equal("last error", rows[0].Record.LastError, "refused")
		if !rows[0].RetryAt.Equal(s.RetryAt) {
			e.Errorf("retry time: got %v, want %v", rows[0].RetryAt, s.RetryAt)
		}
		e.equal("eligible", ids(e.pending(e.now)), ids(recs[1:]))
		s = o.outcome(rows[0], outbox.SettleFailed)
		s.Reason = "again"
		o.one("settled for a retry at once", s, outbox.Settled)
		got := e.row(recs[0])
		e.equal("attempts", got.Record.Attempts, 2)
		e.equal("last error", got.Record.LastError, "again")
		if got.RetryAt.After(e.now) {
			e.Errorf("retry time %v, want at once", got.RetryAt)
		}
		e.equal("eligible", len(e.pending(e.now)), 2)
	}},
	{"P2_failed_unkeyed_row_leaves_the_hot_range", needLanes, func(e *env) {
		later, soon, old := e.rec(""), e.rec(""), e.at("", e.now.Add(-time.Hour))
		e.enlist(later, soon, old)
		o := e.owner()
		o.acquireAll()
		e.equal("promoted", len(first(o.promote())), 1)
		for r, retry := range map[*outbox.Record]time.Time{&later: e.now.Add(time.Hour), &soon: {}, &old: {}} {
			s := o.outcome(e.row(*r), outbox.SettleFailed)
			s.RetryAt = retry
			o.one("settled", s, outbox.Settled)
			e.equal("hot", e.isHot(*r), false)
		}
		got := e.lookup(soon, e.now)
		e.equal("attempts", got.Attempts, 1)
		e.equal("last error", got.LastError, "refused")
		e.equal("eligible", ids(e.pending(e.now)), ids([]outbox.Record{soon, old}))
		rows, next := o.promote()
		e.equal("promoted", len(rows), 2)
		if !next.Equal(e.now.Add(time.Hour)) {
			e.Errorf("next due: got %v, want %v", next, e.now.Add(time.Hour))
		}
		e.equal("attempts kept", e.row(soon).Record.Attempts, 1)
		e.same(soon)
		e.same2(later, e.now.Add(time.Hour))
	}},
	{"P2_failure_without_an_attempt", needLanes, func(e *env) {
		for _, key := range []string{"k", ""} {
			r := e.put(key)
			o := e.owner()
			o.acquireAll()
			s := o.outcome(e.row(r), outbox.SettleFailed)
			s.Attempt = false
			o.one("settled", s, outbox.Settled)
			got := e.lookup(r, e.now)
			e.equal("attempts", got.Attempts, 0)
			e.equal("last error", got.LastError, "refused")
			o.end()
		}
	}},
	{"P2_repeated_outcome_counts_once", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec(""), e.rec("d"), e.rec("p")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		s := []outbox.Settlement{
			o.outcome(e.row(recs[0]), outbox.SettleFailed), o.outcome(e.row(recs[1]), outbox.SettleFailed),
			o.outcome(e.row(recs[2]), outbox.SettleDead), o.outcome(e.row(recs[3]), outbox.SettlePark),
		}
		settled, gone := outbox.Settled, outbox.Gone
		e.equal("first time", o.settle(s...), []outbox.SettleResult{settled, settled, settled, settled})
		e.equal("repeated", o.settle(s...), []outbox.SettleResult{gone, gone, gone, gone})
		e.equal("attempts", []int{e.lookup(recs[0], e.now).Attempts, e.lookup(recs[1], e.now).Attempts}, []int{1, 1})
		e.equal("rows", e.count(e.now), int64(2))
	}},
	{"P2_fence_stops_the_old_owner", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("")}
		e.enlist(recs...)
		a, b := e.owner(), e.owner()
		a.acquireAll()
		rows := []outbox.LaneRow{e.row(recs[0]), e.row(recs[1]), e.row(recs[2])}
		held := a.list()
		a.release(held...)
		for _, l := range held {
			a.leases[l.Lane] = l
		}
		check := func(when string) {
			e.Helper()
			for _, row := range rows {
				for _, out := range []outbox.SettleOutcome{outbox.SettleFailed, outbox.SettleDead, outbox.SettlePark, outbox.SettleCount} {
					a.one(fmt.Sprintf("%s: outcome %d", when, out), a.outcome(row, out), outbox.Fenced)
				}
			}
			_, err := a.store.SettleLanes(e.ctx, outbox.SettleRequest{Owner: a.id, TriedTo: []outbox.LaneMark{{Lane: rows[0].Lane, Epoch: a.leases[rows[0].Lane].Epoch, Pos: 1 << 40}}})
			e.ok(err)
			for _, r := range recs {
				e.equal("attempts", e.lookup(r, e.now).Attempts, 0)
			}
		}
		check("released")
		a.end()
		for _, l := range held {
			a.leases[l.Lane] = l
		}
		b.acquireAll()
		check("another owner")
		e.equal("tried to", b.leases[rows[0].Lane].TriedTo, int64(0))
		// Right owner, wrong epoch; right epoch, wrong owner.
		s := b.outcome(rows[0], outbox.SettleFailed)
		s.Epoch--
		b.one("old epoch", s, outbox.Fenced)
		a.leases[rows[0].Lane] = b.leases[rows[0].Lane]
		a.one("stolen epoch", a.outcome(rows[0], outbox.SettleFailed), outbox.Fenced)
		// What is out is out.
		a.one("accepted by the old owner", a.outcome(rows[0], outbox.SettleAccepted), outbox.Settled)
		b.one("gone for the new owner", b.outcome(rows[0], outbox.SettleFailed), outbox.Gone)
		e.equal("rows", e.count(e.now), int64(2))
	}},
	{"P2_mixed_outcomes_answer_in_order", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec(""), e.rec("d"), e.rec("k"), e.rec("")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		fenced := o.outcome(e.row(recs[4]), outbox.SettleFailed)
		fenced.Epoch += 7
		absent := o.outcome(e.row(recs[3]), outbox.SettleAccepted)
		absent.ID = outbox.NewID()
		res := o.settle(
			o.outcome(e.row(recs[0]), outbox.SettleFailed), fenced, o.outcome(e.row(recs[1]), outbox.SettleAccepted),
			absent, o.outcome(e.row(recs[2]), outbox.SettleDead), o.outcome(e.row(recs[3]), outbox.SettleAccepted),
		)
		e.equal("results", res, []outbox.SettleResult{outbox.Settled, outbox.Fenced, outbox.Settled, outbox.Gone, outbox.Settled, outbox.Settled})
		e.equal("rows", ids(e.pending(e.now)), ids([]outbox.Record{recs[0], recs[4]}))
		e.equal("attempts", e.lookup(recs[0], e.now).Attempts, 1)
	}},
	{"P2_tried_to_rises_and_never_falls", needLanes, func(e *env) {
		o := e.owner()
		o.acquireAll()
		l := o.list()[0]
		raise := func(pos, epoch int64) {
			e.Helper()
			res, err := o.store.SettleLanes(e.ctx, outbox.SettleRequest{Owner: o.id, TriedTo: []outbox.LaneMark{{Lane: l.Lane, Epoch: epoch, Pos: pos}}})
			e.ok(err)
			e.equal("results", len(res), 0)
		}
		for _, c := range []struct{ pos, epoch, want int64 }{{100, l.Epoch, 100}, {50, l.Epoch, 100}, {101, l.Epoch, 101}, {500, l.Epoch + 1, 101}} {
			raise(c.pos, c.epoch)
			o.acquire(0)
			e.equal("tried to", o.leases[l.Lane].TriedTo, c.want)
		}
		e.equal("tried to of another lane", o.list()[1].TriedTo, int64(0))
		// Two marks of a lane in one call, beside accepted rows as well.
		for i, with := range [][]outbox.Settlement{nil, {o.outcome(outbox.LaneRow{Lane: l.Lane, Pos: 1, Record: e.rec("")}, outbox.SettleAccepted)}} {
			low, high := int64(200+10*i), int64(209+10*i)
			for _, order := range [][2]int64{{low, high}, {high - 1, low}} {
				q := outbox.SettleRequest{Owner: o.id, Settlements: with}
				for _, pos := range order {
					q.TriedTo = append(q.TriedTo, outbox.LaneMark{Lane: l.Lane, Epoch: l.Epoch, Pos: pos})
				}
				_, err := o.store.SettleLanes(e.ctx, q)
				e.ok(err)
				o.acquire(0)
				e.equal("tried to", o.leases[l.Lane].TriedTo, high)
			}
		}
	}},
	{"P2_many_settlements_in_one_call", needLanes, func(e *env) {
		recs := make([]outbox.Record, 2500)
		for i := range recs {
			recs[i] = e.rec([]string{"", "a", "b", "c"}[i%4])
		}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		var reads []outbox.LaneRead
		for _, l := range o.list() {
			reads = append(reads, outbox.LaneRead{Lane: l.Lane})
		}
		rows := e.hot(reads...)
		e.equal("rows", len(rows), len(recs))
		var ss []outbox.Settlement
		for i, row := range rows {
			out := outbox.SettleAccepted
			if i%5 == 0 {
				out = outbox.SettleFailed
			}
			ss = append(ss, o.outcome(row, out))
		}
		for i, res := range o.settle(ss...) {
			e.equal(fmt.Sprintf("result %d", i), res, outbox.Settled)
		}
		e.equal("rows", e.count(e.now), int64(500))
	}},
	{"P2_invalid_settlements_change_nothing", needLanes, func(e *env) {
		r, other := e.put("k"), e.put("k")
		o := e.owner()
		o.acquireAll()
		for name, set := range map[string]func(*outbox.SettleRequest){
			"zero owner":      func(q *outbox.SettleRequest) { q.Owner = outbox.ID{} },
			"unknown outcome": func(q *outbox.SettleRequest) { q.Settlements[1].Outcome = 99 },
			"no outcome":      func(q *outbox.SettleRequest) { q.Settlements[1].Outcome = 0 },
			"no reason":       func(q *outbox.SettleRequest) { q.Settlements[1].Reason = "" },
			"zero id":         func(q *outbox.SettleRequest) { q.Settlements[1].ID = outbox.ID{} },
			"count without a reason": func(q *outbox.SettleRequest) {
				q.Settlements[1].Outcome, q.Settlements[1].Reason = outbox.SettleCount, ""
			},
			"an attempt taken back and counted": func(q *outbox.SettleRequest) { q.Settlements[1].TakeBack = true },
			"no attempt to take back": func(q *outbox.SettleRequest) {
				q.Settlements[1].Attempt, q.Settlements[1].TakeBack, q.Settlements[1].Attempts = false, true, 0
			},
			"accepted and an attempt taken back": func(q *outbox.SettleRequest) { q.Settlements[0].TakeBack, q.Settlements[0].Attempts = true, 1 },
			"a failed row for later":             func(q *outbox.SettleRequest) { q.Settlements[1].Later = true },
		} {
			q := outbox.SettleRequest{Owner: o.id, Settlements: []outbox.Settlement{
				o.outcome(e.row(other), outbox.SettleAccepted), o.outcome(e.row(r), outbox.SettleFailed),
			}}
			q.Settlements[1].Attempts = 1
			set(&q)
			if _, err := o.store.SettleLanes(e.ctx, q); !errors.Is(err, outbox.ErrInvalidArgument) {
				e.Errorf("%s: got %v, want ErrInvalidArgument", name, err)
			}
		}
		e.equal("rows", e.count(e.now), int64(2))
		e.equal("attempts", e.lookup(r, e.now).Attempts, 0)
	}},
	{"P2_promotion_moves_due_rows_under_new_positions", needLanes, func(e *env) {
		first, second, hot, future := e.at("k", e.now.Add(-time.Minute)), e.at("k", e.now.Add(-time.Hour)), e.rec("k"), e.at("k", e.now.Add(time.Hour))
		e.enlist(first, second, hot, future)
		o := e.owner()
		o.acquireAll()
		rows, next := o.promote()
		e.equal("promoted", len(rows), 2)
		if !next.Equal(future.Message.DeliverAt) {
			e.Errorf("next due: got %v, want %v", next, future.Message.DeliverAt)
		}
		for _, row := range rows {
			e.equal("lane", row.Lane, e.laneOf("k"))
			if row.Err != nil {
				e.Errorf("promoted row: %v", row.Err)
			}
		}
		// In the order in which they fell due, behind what was hot.
		e.equal("rows", laneIDs(e.hot(outbox.LaneRead{Lane: e.laneOf("k")})), inOrder([]outbox.Record{hot, second, first}))
		e.same(first)
		e.same(second)
		e.equal("eligible", e.count(e.now), int64(3))
		rows, _ = o.promote()
		e.equal("promoted again", len(rows), 0)
	}},
	{"P2_promotion_is_bounded_by_its_slots", needLanes, func(e *env) {
		for range 5 {
			e.enlist(e.at("", e.now.Add(-time.Minute)))
		}
		o := e.owner()
		o.acquireAll()
		total := 0
		for _, want := range []int{2, 2, 1, 0} {
			dst := make([]outbox.LaneRow, 2)
			n, next, err := o.store.PromoteLanes(e.ctx, o.list(), dst)
			e.ok(err)
			e.equal("promoted", n, want)
			if total += n; total < 5 && (next.IsZero() || next.After(e.now)) {
				e.Errorf("next due %v with %d due rows left", next, 5-total)
			}
			if total == 5 && !next.IsZero() {
				e.Errorf("next due %v of nothing", next)
			}
		}
		e.equal("eligible", e.count(e.now), int64(5))
	}},
	{"P2_promotion_is_fenced", needLanes, func(e *env) {
		r := e.at("k", e.now.Add(-time.Minute))
		e.enlist(r)
		a, b := e.owner(), e.owner()
		a.acquireAll()
		old := a.list()
		a.end()
		b.acquireAll()
		dst := make([]outbox.LaneRow, 10)
		n, _, err := a.store.PromoteLanes(e.ctx, old, dst)
		e.ok(err)
		e.equal("promoted by the old owner", n, 0)
		e.equal("hot", e.isHot(r), false)
		rows, _ := b.promote()
		e.equal("promoted by the new owner", len(rows), 1)
	}},
	{"P2_promotion_skips_live_claims", needLanes, func(e *env) {
		r, other := e.at("k", e.now.Add(-time.Minute)), e.at("k", e.now.Add(-time.Minute))
		e.enlist(r, other)
		c := e.claim(r.ID, e.now, e.now.Add(time.Hour))
		o := e.owner()
		o.acquireAll()
		rows, _ := o.promote()
		e.equal("promoted", laneIDs(rows), inOrder([]outbox.Record{other}))
		ok, err := e.store.Complete(e.ctx, c, e.now)
		e.yes("Complete", ok, err)
		e.equal("rows", ids(e.pending(e.now)), ids([]outbox.Record{other}))
	}},
	{"P2_promotion_of_an_undecodable_row", needLanes, func(e *env) {
		good, bad := e.at("k", e.now.Add(-time.Hour)), e.at("k", e.now.Add(-time.Minute))
		e.enlist(good, bad)
		e.ok(e.fix.corrupt(e.ctx, bad.ID))
		o := e.owner()
		o.acquireAll()
		rows, _ := o.promote()
		e.equal("promoted", laneIDs(rows), inOrder([]outbox.Record{good, bad}))
		e.equal("errors", []bool{rows[0].Err != nil, rows[1].Err != nil}, []bool{false, true})
		o.one("settled", o.outcome(rows[1], outbox.SettleDead), outbox.Settled)
	}},
	{"P2_cancellation_is_observed", needLanes, func(e *env) {
		r := e.put("k")
		o := e.owner()
		o.acquireAll()
		row := e.row(r)
		ctx, cancel := context.WithCancel(e.ctx)
		cancel()
		dst := make([]outbox.LaneRow, 8)
		for name, call := range map[string]func() error{
			"AcquireLanes": func() error {
				_, err := o.store.AcquireLanes(ctx, outbox.LaneRequest{Owner: o.id, Routes: []string{e.fix.route}, TTL: time.Minute, End: true})
				return err
			},
			"ReadLanes": func() error {
				_, err := o.store.ReadLanes(ctx, []outbox.LaneRead{{Lane: row.Lane}}, dst)
				return err
			},
			"SweepLanes": func() error {
				_, err := o.store.SweepLanes(ctx, []outbox.LaneRead{{Lane: row.Lane}}, make([]outbox.LaneSpot, 8))
				return err
			},
			"SettleLanes": func() error {
				_, err := o.store.SettleLanes(ctx, outbox.SettleRequest{Owner: o.id, Settlements: []outbox.Settlement{o.outcome(row, outbox.SettleAccepted)}})
				return err
			},
			"PromoteLanes": func() error { _, _, err := o.store.PromoteLanes(ctx, o.list(), dst); return err },
		} {
			if err := call(); !errors.Is(err, context.Canceled) {
				e.Errorf("%s: got %v, want context.Canceled", name, err)
			}
		}
		o.acquireAll()
		e.same(r)
	}},
	{"P2_retry_and_schedule_both_bound_promotion", needLanes, func(e *env) {
		r := e.at("", e.now.Add(-time.Hour))
		e.enlist(r)
		e.fail(r.ID, e.now.Add(time.Hour))
		o := e.owner()
		o.acquireAll()
		rows, next := o.promote()
		e.equal("promoted", len(rows), 0)
		if !next.Equal(e.now.Add(time.Hour)) {
			e.Errorf("next due: got %v, want the retry time %v", next, e.now.Add(time.Hour))
		}
	}},
}

func first[A, B any](a A, _ B) A { return a }
