package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

func (e *env) dead() outbox.DeadLetters { s, _ := e.store.(outbox.DeadLetters); return s }
func (e *env) parker() outbox.Parker    { s, _ := e.store.(outbox.Parker); return s }

// bury settles the records as dead, in the order given.
func (o *owner) bury(recs ...outbox.Record) {
	o.e.Helper()
	for _, r := range recs {
		o.one("settled", o.outcome(o.e.row(r), outbox.SettleDead), outbox.Settled)
	}
}

func (e *env) listDead(q outbox.DeadQuery) []outbox.DeadLetter {
	e.Helper()
	dst := make([]outbox.DeadLetter, 100)
	n, err := e.dead().ListDead(e.ctx, q, dst)
	e.ok(err)
	return dst[:n]
}

func deadIDs(ds []outbox.DeadLetter) (out []outbox.ID) {
	for _, d := range ds {
		out = append(out, d.Record.ID)
	}
	return out
}

func (e *env) park(key string) bool {
	e.Helper()
	ok, err := e.parker().ParkKey(e.ctx, outbox.ParkedKey{Route: e.fix.route, Key: []byte(key), By: "test", Why: "broken customer"})
	e.ok(err)
	return ok
}

func (e *env) unpark(key string) bool {
	e.Helper()
	ok, err := e.parker().UnparkKey(e.ctx, e.fix.route, []byte(key), "test")
	e.ok(err)
	return ok
}

func (e *env) parkedKeys() (out []string) {
	e.Helper()
	keys, err := e.parker().ParkedKeys(e.ctx, nil)
	e.ok(err)
	for _, k := range keys {
		state := "parked"
		if k.Unparking {
			state = "unparking"
		}
		out = append(out, string(k.Key)+" "+state)
	}
	slices.Sort(out)
	return out
}

// moveParked renews, which tells the owner the config versions, and moves.
func (o *owner) moveParked(limit int) (int, []string) {
	o.e.Helper()
	o.acquire(0)
	return o.move(limit)
}

// move moves under the leases as they are.
func (o *owner) move(limit int) (int, []string) {
	o.e.Helper()
	moved, done, err := o.e.store.(outbox.LaneParker).MoveParked(o.e.ctx, o.list(), limit)
	o.e.ok(err)
	var keys []string
	for _, k := range done {
		keys = append(keys, string(k.Key))
	}
	return moved, keys
}

var operatorRules = []rule{
	{"P4_dead_letter_keeps_the_message", needDead, func(e *env) {
		keyed, plain := e.full(), e.rec("")
		keyed.Message.DeliverAt = time.Time{}
		e.enlist(keyed, plain)
		o := e.owner()
		o.acquireAll()
		s := o.outcome(e.row(keyed), outbox.SettleFailed)
		s.Reason = "first failure"
		o.one("failed", s, outbox.Settled)
		row := e.row(keyed)
		s = o.outcome(row, outbox.SettleDead)
		s.Reason = "too often"
		o.one("dead", s, outbox.Settled)
		p := o.outcome(e.row(plain), outbox.SettleDead)
		p.Attempt = false
		o.one("dead at once", p, outbox.Settled)
		e.equal("rows", e.count(e.now), int64(0))
		e.equal("hot", e.isHot(keyed), false)
		ds := e.listDead(outbox.DeadQuery{})
		e.equal("dead", len(ds), 2)
		i := slices.IndexFunc(ds, func(d outbox.DeadLetter) bool { return d.Record.ID == keyed.ID })
		d := ds[i]
		if x := diff(keyed, d.Record, e.fix.nilBodyIsEmpty); x != "" {
			e.Errorf("dead letter changed: %s", x)
		}
		e.equal("attempts", d.Record.Attempts, 2)
		e.equal("reason", d.Reason, "too often")
		e.equal("place", fmt.Sprint(d.Lane, d.Pos), fmt.Sprint(row.Lane, row.Pos))
		if d.DiedAt.IsZero() || d.DiedAt.Before(e.now.Add(-time.Minute)) {
			e.Errorf("died at %v", d.DiedAt)
		}
		e.equal("attempts without one", ds[1-i].Record.Attempts, 0)
		e.equal("first failure of a row that died at once is zero", ds[1-i].FirstFailedAt.IsZero(), true)
	}},
	{"P4_dead_letters_are_listed_oldest_first_in_pages", needDead, func(e *env) {
		var recs []outbox.Record
		for range 5 {
			recs = append(recs, e.rec("k"))
		}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		slices.Reverse(recs)
		for _, r := range recs {
			o.bury(r)
			e.fix.sleep(2 * time.Millisecond)
		}
		e.equal("dead", deadIDs(e.listDead(outbox.DeadQuery{})), inOrder(recs))
		var q outbox.DeadQuery
		var paged []outbox.ID
		dst := make([]outbox.DeadLetter, 2)
		for {
			n, err := e.dead().ListDead(e.ctx, q, dst)
			e.ok(err)
			if n == 0 {
				break
			}
			paged = append(paged, deadIDs(dst[:n])...)
			q.AfterTime, q.AfterID = dst[n-1].DiedAt, dst[n-1].Record.ID
		}
		e.equal("pages", paged, inOrder(recs))
		e.equal("dead of the route", len(e.listDead(outbox.DeadQuery{Route: e.fix.route})), 5)
		for _, d := range e.listDead(outbox.DeadQuery{WithoutBody: true}) {
			e.equal("body", d.Record.Message.Body, []byte(nil))
			e.equal("destination", d.Record.Message.Destination, "orders")
		}
		for _, route := range []string{"", e.fix.route} {
			n, err := e.dead().CountDead(e.ctx, route)
			e.ok(err)
			e.equal("count", n, int64(5))
		}
	}},
	{"P4_undecodable_dead_letter_does_not_hide_the_others", needDead, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		e.ok(e.fix.corrupt(e.ctx, recs[0].ID))
		o := e.owner()
		o.acquireAll()
		o.bury(recs...)
		dst := make([]outbox.DeadLetter, 5)
		n, err := e.dead().ListDead(e.ctx, outbox.DeadQuery{}, dst)
		var bad *outbox.RowError
		if !errors.As(err, &bad) {
			e.Fatalf("got %v, want a *RowError", err)
		}
		e.equal("bad rows", bad.IDs, inOrder(recs[:1]))
		got := deadIDs(dst[:n])
		slices.SortFunc(got, compareID)
		e.equal("rows", got, ids(recs))
	}},
	{"P4_replay_returns_the_row_to_its_place", needDead, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		lane := e.laneOf("k")
		before := e.hot(outbox.LaneRead{Lane: lane})
		config := o.leases[lane].Config
		o.bury(recs[1], recs[0])
		res, err := e.dead().ReplayDead(e.ctx, "test", recs[1].ID, recs[0].ID, outbox.ID{7})
		e.ok(err)
		e.equal("replayed", res.Replayed, 2)
		e.equal("missing", res.Missing, []outbox.ID{{7}})
		e.equal("conflicts", len(res.Conflicts), 0)
		rows := e.hot(outbox.LaneRead{Lane: lane})
		e.equal("rows", laneIDs(rows), inOrder(recs))
		e.equal("positions", positions(rows), positions(before))
		e.equal("attempts", rows[0].Record.Attempts, 0)
		e.equal("eligible", e.count(e.now), int64(3))
		e.same(recs[0])
		e.equal("dead", len(e.listDead(outbox.DeadQuery{})), 0)
		o.acquire(0)
		if o.leases[lane].Config <= config {
			e.Errorf("config version %d after the replay, %d before: the owner would not look again", o.leases[lane].Config, config)
		}
		res, err = e.dead().ReplayDead(e.ctx, "test", recs[0].ID)
		e.ok(err)
		e.equal("replayed twice", fmt.Sprint(res.Replayed, len(res.Missing)), "0 1")
		o.bury(recs[0]) // and it can die again
	}},
	{"P4_replay_of_a_pending_id_is_a_conflict", needDead, func(e *env) {
		r := e.put("k")
		o := e.owner()
		o.acquireAll()
		o.bury(r)
		e.enlist(r) // the dead do not stand in the way of a producer
		res, err := e.dead().ReplayDead(e.ctx, "test", r.ID)
		e.ok(err)
		e.equal("conflicts", res.Conflicts, []outbox.ID{r.ID})
		e.equal("replayed", res.Replayed, 0)
		e.equal("dead", len(e.listDead(outbox.DeadQuery{})), 1)
		e.equal("pending", e.count(e.now), int64(1))
	}},
	{"P4_an_id_that_dies_again_does_not_wedge_the_settle", needDead, func(e *env) {
		// A producer used the id again while the first one was dead.
		r, other := e.rec("k"), e.rec("k")
		e.enlist(r)
		o := e.owner()
		o.acquireAll()
		o.bury(r)
		e.enlist(r, other)
		s := o.outcome(e.row(r), outbox.SettleDead)
		s.Reason = "again"
		e.equal("settled", o.settle(s, o.outcome(e.row(other), outbox.SettleAccepted)), []outbox.SettleResult{outbox.Settled, outbox.Settled})
		e.equal("pending", e.count(e.now), int64(0))
		ds := e.listDead(outbox.DeadQuery{})
		e.equal("dead", deadIDs(ds), []outbox.ID{r.ID})
		e.equal("reason", ds[0].Reason, "again")
	}},
	{"P4_discard_is_final", needDead, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		o.bury(recs...)
		n, err := e.dead().DiscardDead(e.ctx, "test", recs[0].ID, outbox.ID{7})
		e.ok(err)
		e.equal("discarded", n, 1)
		n, err = e.dead().DiscardDead(e.ctx, "test", recs[0].ID)
		e.ok(err)
		e.equal("discarded again", n, 0)
		e.equal("dead", deadIDs(e.listDead(outbox.DeadQuery{})), inOrder(recs[1:]))
		e.equal("pending", e.count(e.now), int64(0))
	}},
	{"P4_settle_park_parks_the_key", needParker, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("other")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		s := o.outcome(e.row(recs[0]), outbox.SettlePark)
		s.Reason = "poison"
		o.one("settled", s, outbox.Settled)
		e.equal("hot", e.isHot(recs[0]), false)
		e.equal("parked", e.parkedKeys(), []string{"k parked"})
		keys, err := e.parker().ParkedKeys(e.ctx, []outbox.Lane{s.Lane})
		e.ok(err)
		e.equal("why", keys[0].Why, "poison")
		e.equal("place", fmt.Sprint(keys[0].Lane, keys[0].Route, keys[0].At.IsZero()), fmt.Sprint(s.Lane, e.fix.route, false))
		e.equal("eligible", ids(e.pending(e.now)), ids(recs[2:]))
		e.equal("count", e.count(e.now), int64(1))
		ok, err := e.store.TryClaim(e.ctx, outbox.Claim{ID: recs[1].ID, Token: outbox.NewToken()}, e.now, e.now.Add(time.Minute))
		e.no("TryClaim of a row of a parked key", ok, err)
		keys, err = e.parker().ParkedKeys(e.ctx, []outbox.Lane{s.Lane + 1})
		e.ok(err)
		e.equal("parked keys of another lane", len(keys), 0)
	}},
	{"P4_unkeyed_row_cannot_be_parked_and_dies", needDead, func(e *env) {
		r := e.put("")
		o := e.owner()
		o.acquireAll()
		o.one("settled", o.outcome(e.row(r), outbox.SettlePark), outbox.Settled)
		e.equal("dead", deadIDs(e.listDead(outbox.DeadQuery{})), []outbox.ID{r.ID})
		e.equal("pending", e.count(e.now), int64(0))
	}},
	{"P4_park_and_unpark_are_idempotent", needParker, func(e *env) {
		e.put("k")
		o := e.owner()
		o.acquireAll()
		lane := e.laneOf("k")
		config := o.leases[lane].Config
		raised := func(what string, want bool) {
			e.Helper()
			o.acquire(0)
			if c := o.leases[lane].Config; (c > config) != want {
				e.Errorf("%s: config version %d, was %d", what, c, config)
			}
			config = o.leases[lane].Config
		}
		e.equal("unpark of a key that is not parked", e.unpark("k"), false)
		e.equal("park", e.park("k"), true)
		raised("park", true)
		e.equal("park again", e.park("k"), false)
		e.equal("parked", e.parkedKeys(), []string{"k parked"})
		e.equal("eligible", e.count(e.now), int64(0))
		e.equal("unpark", e.unpark("k"), true)
		raised("unpark", true)
		e.equal("parked", e.parkedKeys(), []string{"k unparking"})
		e.equal("eligible while it comes back", e.count(e.now), int64(0))
		e.equal("park on its way back", e.park("k"), true)
		e.equal("parked", e.parkedKeys(), []string{"k parked"})
		for name, err := range map[string]error{
			"empty key": second(e.parker().ParkKey(e.ctx, outbox.ParkedKey{Route: e.fix.route, By: "test"})),
			"route":     second(e.parker().ParkKey(e.ctx, outbox.ParkedKey{Route: "no-such-route", Key: []byte("k"), By: "test"})),
		} {
			if err == nil {
				e.Errorf("ParkKey with a wrong %s: no error", name)
			}
		}
	}},
	{"P4_parked_key_waits_and_returns_in_order", needMover, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("k"), e.rec("other")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		lane := e.laneOf("k")
		before := e.hot(outbox.LaneRead{Lane: lane, Keys: [][]byte{[]byte("k")}})
		o.one("settled", o.outcome(e.row(recs[0]), outbox.SettlePark), outbox.Settled)
		moved, done := o.moveParked(100)
		e.equal("moved aside", fmt.Sprint(moved, done), "2 []")
		e.equal("hot", []bool{e.isHot(recs[1]), e.isHot(recs[3])}, []bool{false, true})
		late := e.put("k") // producers go on
		moved, _ = o.moveParked(100)
		e.equal("moved aside", moved, 1)
		rows, _ := o.promote()
		e.equal("promoted, though parked", len(rows), 0)
		e.equal("unpark", e.unpark("k"), true)
		last := e.put("k")
		moved, done = o.moveParked(100)
		e.equal("brought back", fmt.Sprint(moved, done), "4 [k]")
		e.equal("parked", len(e.parkedKeys()), 0)
		rows = e.hot(outbox.LaneRead{Lane: lane, Keys: [][]byte{[]byte("k")}})
		e.equal("rows", laneIDs(rows), inOrder([]outbox.Record{recs[0], recs[1], recs[2], late, last}))
		e.equal("old positions", positions(rows)[:3], positions(before))
		e.equal("eligible", e.count(e.now), int64(6))
		e.equal("attempts", rows[0].Record.Attempts, 1)
		e.same(recs[0])
	}},
	{"P4_moving_is_bounded_and_fenced", needMover, func(e *env) {
		for range 5 {
			e.put("k")
		}
		a, b := e.owner(), e.owner()
		a.acquireAll()
		e.park("k")
		a.acquire(0)
		old := a.leases
		a.end()
		b.acquireAll()
		a.leases = old
		moved, done := a.move(100)
		e.equal("moved by the old owner", fmt.Sprint(moved, done), "0 []")
		for _, want := range []int{2, 2, 1} {
			moved, _ = b.moveParked(2)
			e.equal("moved aside", moved, want)
		}
		e.unpark("k")
		lifted := 0
		for i, want := range []int{2, 2, 1} {
			moved, done = b.moveParked(2)
			e.equal("brought back", moved, want)
			lifted += len(done)
			if i < 2 {
				e.equal("lifted early", len(done), 0)
			}
		}
		e.equal("lifted", lifted, 1)
		e.equal("rows", len(e.hot(outbox.LaneRead{Lane: e.laneOf("k")})), 5)
	}},
	{"P4_unparking_a_key_without_rows_lifts_it", needMover, func(e *env) {
		o := e.owner()
		o.acquireAll()
		e.park("empty")
		e.unpark("empty")
		moved, done := o.moveParked(10)
		e.equal("moved", fmt.Sprint(moved, done), "0 [empty]")
		e.equal("parked", len(e.parkedKeys()), 0)
	}},
	{"P4_accepted_row_that_was_moved_aside_is_deleted", needMover, func(e *env) {
		// The operator parks the key while its first row is in flight.
		recs := []outbox.Record{e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		row := e.row(recs[0])
		e.park("k")
		moved, _ := o.moveParked(10)
		e.equal("moved", moved, 2)
		o.one("accepted", o.outcome(row, outbox.SettleAccepted), outbox.Settled)
		e.unpark("k")
		o.moveParked(10)
		e.equal("rows", ids(e.pending(e.now)), ids(recs[1:]))
	}},
	{"P4_failure_under_a_claim_leaves_the_row_parked", needMover, func(e *env) {
		// Claimed by a third party, then its key is parked and moved aside.
		r := e.put("k")
		c := e.claim(r.ID, e.now, e.now.Add(time.Hour))
		o := e.owner()
		o.acquireAll()
		e.park("k")
		moved, _ := o.moveParked(10)
		e.equal("moved", moved, 1)
		ok, err := e.store.RecordFailure(e.ctx, c, e.now, outbox.Failure{Reason: "refused", RetryAt: e.now.Add(-time.Minute)})
		e.yes("RecordFailure", ok, err)
		e.equal("eligible", e.count(e.now.Add(time.Hour)), int64(0))
		rows, _ := o.promote()
		e.equal("promoted", len(rows), 0)
		e.unpark("k")
		moved, _ = o.moveParked(10)
		e.equal("brought back", moved, 1)
		e.equal("attempts", e.lookup(r, e.now).Attempts, 1)
	}},
	{"P4_a_row_is_in_exactly_one_place", needMover, func(e *env) {
		dead := e.dead()
		if dead == nil {
			e.Skip("no DeadLetters")
		}
		hot, scheduled, parked, gone, sent := e.rec("h"), e.at("s", e.now.Add(time.Hour)), e.rec("p"), e.rec("d"), e.rec("x")
		e.enlist(hot, scheduled, parked, gone, sent)
		o := e.owner()
		o.acquireAll()
		o.settle(o.outcome(e.row(parked), outbox.SettlePark), o.outcome(e.row(gone), outbox.SettleDead), o.outcome(e.row(sent), outbox.SettleAccepted))
		far := e.now.Add(1000 * time.Hour)
		e.equal("eligible at any time", ids(e.pending(far)), ids([]outbox.Record{hot, scheduled}))
		e.equal("dead", deadIDs(e.listDead(outbox.DeadQuery{})), []outbox.ID{gone.ID})
		e.equal("parked", e.parkedKeys(), []string{"p parked"})
		e.unpark("p")
		o.moveParked(10)
		e.equal("eligible at any time", ids(e.pending(far)), ids([]outbox.Record{hot, scheduled, parked}))
	}},
	{"P9_overview", needInspect, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec(""), e.at("k", e.now.Add(time.Hour)), e.rec("d")}
		recs[0].CreatedAt = e.now.Add(-3 * time.Hour)
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		o.one("dead", o.outcome(e.row(recs[3]), outbox.SettleDead), outbox.Settled)
		v, err := e.store.(outbox.Inspector).Inspect(e.ctx, e.now)
		e.ok(err)
		i := slices.IndexFunc(v.Routes, func(r outbox.RouteOverview) bool { return r.Name == e.fix.route })
		if i < 0 {
			e.Fatalf("no route %q in %+v", e.fix.route, v)
		}
		r := v.Routes[i]
		e.equal("pending, deferred, dead, parked, held", []int64{r.Pending, r.Deferred, r.Dead, r.ParkedKeys, int64(r.Held)}, []int64{2, 1, 1, 0, int64(len(o.leases))})
		if !r.OldestPending.Equal(recs[0].CreatedAt) {
			e.Errorf("oldest pending: got %v, want %v", r.OldestPending, recs[0].CreatedAt)
		}
		e.equal("relays", len(v.Relays), 1)
		e.equal("relay", v.Relays[0].Owner, o.id)
		e.equal("lanes of the relay", v.Relays[0].Lanes, len(o.leases))
		if v.Now.IsZero() || v.Relays[0].ExpiresIn <= 0 {
			e.Errorf("overview %+v", v)
		}
		o.end()
		v, err = e.store.(outbox.Inspector).Inspect(e.ctx, e.now)
		e.ok(err)
		e.equal("relays after the end", len(v.Relays), 0)
	}},
}

func second[A any](_ A, err error) error { return err }
