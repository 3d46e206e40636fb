package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/outbox"
)

// accept settles the records' rows as accepted, one call, with or without the
// flag that asks to count them for the dead.
func (o *owner) accept(later bool, recs ...outbox.Record) {
	o.e.Helper()
	var ss []outbox.Settlement
	for _, r := range recs {
		s := o.outcome(o.e.row(r), outbox.SettleAccepted)
		s.Later = later
		ss = append(ss, s)
	}
	for i, res := range o.settle(ss...) {
		o.e.equal(fmt.Sprintf("accepted row %d", i), res, outbox.Settled)
	}
}

// laterOut checks the counts of the dead letters.
func (e *env) laterOut(what string, want map[outbox.ID]int64) {
	e.Helper()
	got := map[outbox.ID]int64{}
	for _, q := range []outbox.DeadQuery{{}, {Route: e.fix.route, WithoutBody: true}} {
		clear(got)
		for _, d := range e.listDead(q) {
			got[d.Record.ID] = d.LaterOut
		}
		e.equal(what, got, want)
	}
}

var laterRules = []rule{
	{"P4_later_messages_of_a_key_are_counted", needDead, func(e *env) {
		keys := e.keysOfOneLane(2)
		key, beside := keys[0], keys[1]
		var recs []outbox.Record
		for range 9 {
			recs = append(recs, e.rec(key))
		}
		neighbour, plain, buried := e.rec(beside), e.rec(""), e.rec("")
		e.enlist(append(recs, neighbour, plain, buried)...)
		o := e.owner()
		o.acquireAll()
		o.bury(recs[1], recs[3], buried)
		want := map[outbox.ID]int64{recs[1].ID: 0, recs[3].ID: 0, buried.ID: 0}
		e.laterOut("nothing out", want)
		o.accept(true, recs[0])
		e.laterOut("an earlier one out", want)
		o.accept(true, recs[2])
		want[recs[1].ID]++
		e.laterOut("one between them out", want)
		o.accept(true, neighbour, plain)
		e.laterOut("others of the lane and without a key out", want)
		o.accept(true, recs[4], recs[6])
		want[recs[1].ID] += 2
		want[recs[3].ID] += 2
		e.laterOut("two in one call out", want)
		o.accept(false, recs[5])
		e.laterOut("one out that was not to be counted", want)
		e.equal("of two in one call, one to be counted", o.settle(func() []outbox.Settlement {
			ss := []outbox.Settlement{o.outcome(e.row(recs[7]), outbox.SettleAccepted), o.outcome(e.row(recs[8]), outbox.SettleAccepted)}
			ss[1].Later = true
			return ss
		}()...), []outbox.SettleResult{outbox.Settled, outbox.Settled})
		want[recs[1].ID]++
		want[recs[3].ID]++
		e.laterOut("one of two out", want)
		e.equal("rows", e.count(e.now), int64(0))
	}},
	{"P4_later_messages_are_counted_once", needDead, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		o.bury(recs[0])
		s := o.outcome(e.row(recs[1]), outbox.SettleAccepted)
		s.Later = true
		e.equal("twice in a call", o.settle(s, s), []outbox.SettleResult{outbox.Settled, outbox.Gone})
		o.one("repeated", s, outbox.Gone)
		e.laterOut("later ones", map[outbox.ID]int64{recs[0].ID: 1})
		// Without a fence, as it is out; and beside other outcomes.
		s = o.outcome(e.row(recs[2]), outbox.SettleAccepted)
		s.Later = true
		o.end()
		p := e.owner()
		p.acquireAll()
		last := e.put("k")
		e.equal("of the old owner", p.settle(s, p.outcome(e.row(last), outbox.SettleFailed)), []outbox.SettleResult{outbox.Settled, outbox.Settled})
		e.laterOut("later ones", map[outbox.ID]int64{recs[0].ID: 2})
	}},
	{"P4_a_row_that_dies_counts_what_its_call_accepts", needDead, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		var ss []outbox.Settlement
		for _, r := range recs {
			s := o.outcome(e.row(r), outbox.SettleAccepted)
			s.Later = true
			ss = append(ss, s)
		}
		ss[1] = o.outcome(e.row(recs[1]), outbox.SettleDead)
		e.equal("settled", o.settle(ss...), []outbox.SettleResult{outbox.Settled, outbox.Settled, outbox.Settled})
		e.laterOut("later ones", map[outbox.ID]int64{recs[1].ID: 1})
	}},
	{"P4_later_row_that_was_moved_aside_is_counted", needMover, func(e *env) {
		if e.dead() == nil {
			e.Skip("no DeadLetters")
		}
		recs := []outbox.Record{e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		o.bury(recs[0])
		s := o.outcome(e.row(recs[1]), outbox.SettleAccepted)
		s.Later = true
		e.park("k")
		moved, _ := o.moveParked(10)
		e.equal("moved", moved, 1)
		o.one("accepted", s, outbox.Settled)
		o.one("repeated", s, outbox.Gone)
		e.laterOut("later ones", map[outbox.ID]int64{recs[0].ID: 1})
	}},
	{"P4_replay_tells_what_is_out", needDead, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("k"), e.rec("k"), e.rec("k"), e.rec("")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		o.bury(recs[0], recs[1], recs[5])
		o.accept(true, recs[2], recs[3])
		e.enlist(recs[1]) // a conflict stays among the dead, and out of the sum
		res, err := e.dead().ReplayDead(e.ctx, "test", recs[0].ID, recs[1].ID, recs[0].ID, recs[5].ID, outbox.ID{7})
		e.ok(err)
		e.equal("replayed and later ones", fmt.Sprint(res.Replayed, res.LaterOut, len(res.Conflicts), len(res.Missing)), "2 2 1 1")
		e.laterOut("left", map[outbox.ID]int64{recs[1].ID: 2})
		res, err = e.dead().ReplayDead(e.ctx, "test", recs[0].ID)
		e.ok(err)
		e.equal("replayed again", fmt.Sprint(res.Replayed, res.LaterOut), "0 0")
		// It dies again, and counts from then on.
		o.bury(recs[0])
		o.accept(true, recs[4])
		e.laterOut("later ones", map[outbox.ID]int64{recs[0].ID: 1, recs[1].ID: 3})
	}},
	{"P4_replay_counts_a_message_once", needDead, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		o.bury(recs[0], recs[2])
		o.accept(true, recs[1], recs[3])
		e.laterOut("later ones", map[outbox.ID]int64{recs[0].ID: 2, recs[2].ID: 1})
		res, err := e.dead().ReplayDead(e.ctx, "test", recs[2].ID, recs[0].ID)
		e.ok(err)
		e.equal("replayed and later ones", fmt.Sprint(res.Replayed, res.LaterOut), "2 2")
	}},
	{"P4_replays_and_discards_at_once", needDead, func(e *env) {
		// Whoever comes second finds the letter gone: a message that was said to
		// be discarded is never sent, and one that is back is no conflict.
		const letters = 40
		var recs []outbox.Record
		for i := range letters {
			recs = append(recs, e.rec(fmt.Sprint("k", i%4)))
		}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		o.bury(recs...)
		var wg sync.WaitGroup
		var replayed, discarded, conflicts atomic.Int64
		for _, r := range recs {
			for range 2 {
				wg.Go(func() {
					res, err := e.dead().ReplayDead(e.ctx, "test", r.ID)
					if err != nil {
						e.Errorf("replay: %v", err)
					}
					replayed.Add(int64(res.Replayed))
					conflicts.Add(int64(len(res.Conflicts)))
				})
			}
			wg.Go(func() {
				n, err := e.dead().DiscardDead(e.ctx, "test", r.ID)
				if err != nil {
					e.Errorf("discard: %v", err)
				}
				discarded.Add(int64(n))
			})
		}
		wg.Wait()
		hot := 0
		for i := range 4 {
			hot += len(e.hot(outbox.LaneRead{Lane: e.laneOf(fmt.Sprint("k", i)), Keys: [][]byte{fmt.Append(nil, "k", i)}}))
		}
		e.equal("replayed and discarded", replayed.Load()+discarded.Load(), int64(letters))
		e.equal("pending", int64(hot), replayed.Load())
		e.equal("conflicts", conflicts.Load(), int64(0))
	}},
	{"P4_lease_tells_of_dead_letters_with_keys", needDead, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		check := func(what string, want bool) {
			e.Helper()
			o.acquire(0)
			for _, l := range o.list() {
				e.equal(fmt.Sprintf("dead letters of lane %d, %s", l.Lane, what), l.Dead, want && l.Lane == e.laneOf("k"))
			}
		}
		check("none", false)
		o.bury(recs[1])
		check("one without a key", false)
		o.bury(recs[0])
		check("one with a key", true)
		o.end()
		o = e.owner()
		o.acquireAll()
		check("after a hand-over", true)
		_, err := e.dead().ReplayDead(e.ctx, "test", recs[0].ID)
		e.ok(err)
		check("after the replay", false)
		o.bury(recs[0])
		check("dead again", true)
		_, err = e.dead().DiscardDead(e.ctx, "test", recs[0].ID)
		e.ok(err)
		check("discarded", false)
	}},
	{"P4_many_later_messages_in_one_call", needDead, func(e *env) {
		// More than one chunk of rows, and letters between them.
		recs := make([]outbox.Record, 2400)
		for i := range recs {
			recs[i] = e.rec("k")
		}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		lane := e.laneOf("k")
		var dead, ss []outbox.Settlement
		want := map[outbox.ID]int64{}
		var after int64
		for rows := e.hot(outbox.LaneRead{Lane: lane}); len(rows) > 0; rows = e.hot(outbox.LaneRead{Lane: lane, After: after}) {
			for _, row := range rows {
				after = row.Pos
				if i := len(dead) + len(ss); i%300 == 0 {
					dead = append(dead, o.outcome(row, outbox.SettleDead))
					want[row.Record.ID] = int64(len(recs) - i - (len(recs)-i-1)/300 - 1)
					continue
				}
				s := o.outcome(row, outbox.SettleAccepted)
				s.Later = true
				ss = append(ss, s)
			}
		}
		e.equal("rows", len(dead)+len(ss), len(recs))
		o.settle(dead...)
		start := time.Now()
		o.settle(ss...)
		e.Logf("%d rows settled in %v", len(ss), time.Since(start))
		e.laterOut("later ones", want)
	}},
}
