package storetest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// storedLane is where the row of rec lies.
func (e *env) storedLane(rec outbox.Record) outbox.Lane {
	e.Helper()
	if r, ok := e.route(); ok {
		return outbox.LaneOf(r, rec.ID, rec.Message.Key)
	}
	for n := outbox.Lane(1); n <= 64; n++ { // a store that cannot tell its routes
		for _, row := range e.hot(outbox.LaneRead{Lane: n}) {
			if row.Record.ID == rec.ID || rec.Message.Key != nil && bytes.Equal(row.Record.Message.Key, rec.Message.Key) {
				return n
			}
		}
	}
	e.Fatalf("no lane has row %s: implement outbox.Router", rec.ID)
	return 0
}

func (e *env) laneOf(key string) outbox.Lane {
	e.Helper()
	return e.storedLane(e.rec(key))
}

// keysOfOneLane returns n keys that lie in one lane.
func (e *env) keysOfOneLane(n int) (keys []string) {
	e.Helper()
	r, ok := e.route()
	if !ok {
		e.Skip("the store does not implement outbox.Router")
	}
	for i := 0; len(keys) < n; i++ {
		k := fmt.Sprint("key-", i)
		if outbox.KeyLane([]byte(k), r.Ordered) == outbox.KeyLane([]byte("key-0"), r.Ordered) {
			keys = append(keys, k)
		}
	}
	return keys
}

// hot reads up to 1024 rows per read.
func (e *env) hot(reads ...outbox.LaneRead) []outbox.LaneRow {
	e.Helper()
	n := 0
	for _, r := range reads {
		n += max(1, len(r.Keys))
	}
	dst := make([]outbox.LaneRow, n*1024)
	n, err := e.lanes().ReadLanes(e.ctx, reads, dst)
	e.ok(err)
	return dst[:n]
}

// row returns the hot row of rec.
func (e *env) row(rec outbox.Record) outbox.LaneRow {
	e.Helper()
	row, ok := e.findRow(rec)
	if !ok {
		e.Fatalf("row %s is not in the hot range", rec.ID)
	}
	return row
}

func (e *env) findRow(rec outbox.Record) (outbox.LaneRow, bool) {
	e.Helper()
	for _, row := range e.hot(outbox.LaneRead{Lane: e.storedLane(rec)}) {
		if row.Record.ID == rec.ID {
			return row, true
		}
	}
	return outbox.LaneRow{}, false
}

func (e *env) isHot(rec outbox.Record) bool {
	e.Helper()
	_, ok := e.findRow(rec)
	return ok
}

// laneIDs lists the rows' ids in the order in which they were read.
func laneIDs(rows []outbox.LaneRow) (out []outbox.ID) {
	for _, r := range rows {
		out = append(out, r.Record.ID)
	}
	return out
}

func positions(rows []outbox.LaneRow) (out []int64) {
	for _, r := range rows {
		out = append(out, r.Pos)
	}
	return out
}

func inOrder(recs []outbox.Record) (out []outbox.ID) {
	for _, r := range recs {
		out = append(out, r.ID)
	}
	return out
}

var laneReadRules = []rule{
	{"P3_rows_come_by_position_not_by_id", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("k")}
		slices.Reverse(recs)
		for _, r := range recs {
			e.enlist(r)
		}
		rows := e.hot(outbox.LaneRead{Lane: e.laneOf("k")})
		e.equal("rows", laneIDs(rows), inOrder(recs))
		if !slices.IsSorted(positions(rows)) || rows[0].Pos < 1 {
			e.Errorf("positions %v", positions(rows))
		}
	}},
	{"P3_a_row_as_its_owner_sees_it", needLanes, func(e *env) {
		keyed, plain := e.full(), e.rec("")
		keyed.Message.DeliverAt = time.Time{}
		e.enlist(keyed, plain)
		row := e.row(keyed)
		if d := diff(keyed, row.Record, e.fix.nilBodyIsEmpty); d != "" {
			e.Errorf("row changed: %s", d)
		}
		e.equal("contract lane of a keyed row", row.Record.Lane, row.Lane)
		e.equal("claimed, waiting, late, broken", fmt.Sprint(row.Claimed, row.RetryAt.IsZero(), row.KeyPrev, row.Err), "false true 0 <nil>")
		row = e.row(plain)
		if d := diff(plain, row.Record, e.fix.nilBodyIsEmpty); d != "" {
			e.Errorf("row changed: %s", d)
		}
		e.equal("contract lane of an unkeyed row", row.Record.Lane, outbox.Unordered)
		if row.Lane < 1 {
			e.Errorf("stored lane %d", row.Lane)
		}
	}},
	{"P3_after_is_exclusive_and_upto_inclusive", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		lane := e.laneOf("k")
		p := positions(e.hot(outbox.LaneRead{Lane: lane}))
		e.equal("rows above the second", positions(e.hot(outbox.LaneRead{Lane: lane, After: p[1]})), p[2:])
		e.equal("rows up to the third", positions(e.hot(outbox.LaneRead{Lane: lane, UpTo: p[2]})), p[:3])
		e.equal("rows between", positions(e.hot(outbox.LaneRead{Lane: lane, After: p[0], UpTo: p[1]})), p[1:2])
		e.equal("rows above the last", len(e.hot(outbox.LaneRead{Lane: lane, After: p[3]})), 0)
	}},
	{"P3_limit_per_read", needLanes, func(e *env) {
		keys := []string{"a", "b"}
		for e.laneOf(keys[0]) == e.laneOf(keys[1]) {
			keys[1] += "b"
		}
		for i := range 20 {
			e.put(keys[i%2])
		}
		reads := []outbox.LaneRead{{Lane: e.laneOf(keys[1])}, {Lane: e.laneOf(keys[0])}}
		for _, slots := range []int{2, 15, 16, 17, 64} {
			dst := make([]outbox.LaneRow, slots)
			n, err := e.lanes().ReadLanes(e.ctx, reads, dst)
			e.ok(err)
			each := min(outbox.LaneLimit(slots, 2), 10)
			e.equal(fmt.Sprintf("rows in %d slots", slots), n, 2*each)
			for i, row := range dst[:n] {
				e.equal("lane, grouped by read", row.Lane, reads[i/each].Lane)
				if i%each > 0 && row.Pos <= dst[i-1].Pos {
					e.Errorf("position %d after %d", row.Pos, dst[i-1].Pos)
				}
			}
		}
	}},
	{"P3_sweep_tells_where_rows_lie", needLanes, func(e *env) {
		waiting, claimed, free, plain := e.rec("k"), e.rec("k"), e.rec("k"), e.rec("")
		e.enlist(waiting, claimed, free, e.at("k", e.now.Add(time.Hour)), plain)
		e.fail(waiting.ID, e.now.Add(time.Hour))
		e.claim(claimed.ID, e.now, e.now.Add(time.Hour))
		sweep := func(slots int, reads ...outbox.LaneRead) []outbox.LaneSpot {
			dst := make([]outbox.LaneSpot, slots)
			n, err := e.lanes().SweepLanes(e.ctx, reads, dst)
			e.ok(err)
			return dst[:n]
		}
		spot := func(r outbox.Record) outbox.LaneSpot {
			row := e.row(r)
			s := outbox.LaneSpot{Lane: row.Lane, Pos: row.Pos, ID: r.ID, Size: len(r.Message.Body)}
			if r.Message.Key != nil {
				s.KeyHash = outbox.KeyHash(r.Message.Key)
			}
			return s
		}
		keyed, unkeyed := outbox.LaneRead{Lane: e.laneOf("k")}, outbox.LaneRead{Lane: e.row(plain).Lane}
		all := []outbox.LaneSpot{spot(waiting), spot(claimed), spot(free)}
		e.equal("spots", sweep(64, unkeyed, keyed), append([]outbox.LaneSpot{spot(plain)}, all...))
		keyed.After, keyed.UpTo = all[0].Pos, all[1].Pos
		e.equal("spots between", sweep(64, keyed), all[1:2])
		keyed.After, keyed.UpTo = 0, 0
		e.equal("spots in one slot each", sweep(2, keyed, unkeyed), []outbox.LaneSpot{all[0], spot(plain)})
		e.equal("no reads", len(sweep(0)), 0)
		for what, reads := range map[string][]outbox.LaneRead{
			"too few slots": {keyed, unkeyed},
			"no such lane":  {{Lane: 1 << 20}},
			"keys":          {{Lane: keyed.Lane, Keys: [][]byte{[]byte("k")}}},
		} {
			if _, err := e.lanes().SweepLanes(e.ctx, reads, make([]outbox.LaneSpot, 1)); !errors.Is(err, outbox.ErrInvalidArgument) {
				e.Errorf("%s: got %v, want ErrInvalidArgument", what, err)
			}
		}
	}},
	{"P3_read_of_keys", needLanes, func(e *env) {
		keys := e.keysOfOneLane(3)
		lane := e.laneOf(keys[0])
		want := map[string][]outbox.ID{}
		for i := range 12 {
			r := e.put(keys[i%3])
			want[keys[i%3]] = append(want[keys[i%3]], r.ID)
		}
		got := map[string][]outbox.ID{}
		for _, row := range e.hot(outbox.LaneRead{Lane: lane, Keys: [][]byte{[]byte(keys[2]), []byte(keys[0])}}) {
			k := string(row.Record.Message.Key)
			got[k] = append(got[k], row.Record.ID)
		}
		delete(want, keys[1])
		e.equal("rows by key", got, want)
		// Each key counts when the slots are shared out.
		dst := make([]outbox.LaneRow, 3)
		n, err := e.lanes().ReadLanes(e.ctx, []outbox.LaneRead{{Lane: lane, Keys: [][]byte{[]byte(keys[0]), []byte(keys[1]), []byte(keys[2])}}}, dst)
		e.ok(err)
		e.equal("rows of three keys in three slots", n, 3)
		for _, row := range dst {
			k := string(row.Record.Message.Key)
			if want[k] != nil && row.Record.ID != want[k][0] {
				e.Errorf("key %s: got %s, want its first row", k, row.Record.ID)
			}
		}
	}},
	{"P3_blocking_rows_are_returned", needLanes, func(e *env) {
		waiting, claimed, free := e.rec("k"), e.rec("k"), e.rec("k")
		e.enlist(waiting, claimed, free)
		retry := e.now.Add(time.Hour)
		e.fail(waiting.ID, retry)
		e.claim(claimed.ID, e.now, e.now.Add(time.Hour))
		rows := e.hot(outbox.LaneRead{Lane: e.laneOf("k")})
		e.equal("rows", laneIDs(rows), inOrder([]outbox.Record{waiting, claimed, free}))
		if !rows[0].RetryAt.Equal(retry) {
			e.Errorf("retry time: got %v, want %v", rows[0].RetryAt, retry)
		}
		e.equal("attempts", rows[0].Record.Attempts, 1)
		e.equal("last error", rows[0].Record.LastError, "refused")
		e.equal("claimed", []bool{rows[0].Claimed, rows[1].Claimed, rows[2].Claimed}, []bool{false, true, false})
	}},
	{"P3_scheduled_rows_are_not_in_the_hot_range", needLanes, func(e *env) {
		future, past, now := e.at("k", e.now.Add(time.Hour)), e.at("k", e.now.Add(-time.Hour)), e.rec("k")
		e.enlist(future, past, now)
		e.equal("rows", laneIDs(e.hot(outbox.LaneRead{Lane: e.laneOf("k")})), inOrder([]outbox.Record{now}))
	}},
	{"P3_undecodable_row_keeps_its_place", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		e.ok(e.fix.corrupt(e.ctx, recs[1].ID))
		rows := e.hot(outbox.LaneRead{Lane: e.laneOf("k")})
		e.equal("rows", laneIDs(rows), inOrder(recs))
		e.equal("errors", []bool{rows[0].Err != nil, rows[1].Err != nil, rows[2].Err != nil}, []bool{false, true, false})
		e.equal("key", string(rows[1].Record.Message.Key), "k")
		e.equal("lane", rows[1].Lane, rows[0].Lane)
		o := e.owner()
		o.acquireAll()
		e.equal("settled", o.settle(o.outcome(rows[1], outbox.SettleDead)), []outbox.SettleResult{outbox.Settled})
		e.equal("rows", laneIDs(e.hot(outbox.LaneRead{Lane: e.laneOf("k")})), inOrder([]outbox.Record{recs[0], recs[2]}))
	}},
	{"P3_key_prev_names_the_row_below_the_cursor", needManyWriter, func(e *env) {
		keys := e.keysOfOneLane(2)
		a, b, c, d := e.rec(keys[0]), e.rec(keys[1]), e.rec(keys[0]), e.rec(keys[0])
		e.enlist(a, b, c, d)
		lane := e.laneOf(keys[0])
		rows := e.hot(outbox.LaneRead{Lane: lane})
		p := positions(rows)
		for _, row := range rows {
			e.equal("KeyPrev of a read from the start", row.KeyPrev, int64(0))
		}
		prev := func(after int64) (out []int64) {
			for _, row := range e.hot(outbox.LaneRead{Lane: lane, After: after}) {
				out = append(out, row.KeyPrev)
			}
			return out
		}
		e.equal("after the first", prev(p[0]), []int64{0, p[0], p[0]})
		e.equal("after the second", prev(p[1]), []int64{p[0], p[0]})
		e.equal("after the third", prev(p[2]), []int64{p[2]})
		o := e.owner()
		o.acquireAll()
		o.settle(o.outcome(rows[2], outbox.SettleAccepted))
		e.equal("after the third, which is delivered", prev(p[2]), []int64{p[0]})
		o.settle(o.outcome(rows[0], outbox.SettleAccepted))
		e.equal("after the third, all delivered", prev(p[2]), []int64{0})
		plain := e.put("")
		e.equal("KeyPrev of an unkeyed row", e.row(plain).KeyPrev, int64(0))
	}},
	{"P3_key_prev_above_what_is_seen", needManyWriter, func(e *env) {
		keys := e.keysOfOneLane(2)
		a, b, c, d := e.rec(keys[0]), e.rec(keys[1]), e.rec(keys[0]), e.rec(keys[1])
		e.enlist(a, b, c, d)
		p := positions(e.hot(outbox.LaneRead{Lane: e.laneOf(keys[0])}))
		last, other := e.put(keys[0]), e.put(keys[1])
		prev := func(seen ...outbox.SeenKey) map[outbox.ID]int64 {
			slices.SortFunc(seen, func(a, b outbox.SeenKey) int { return cmp.Compare(a.Hash, b.Hash) })
			got := map[outbox.ID]int64{}
			for _, row := range e.hot(outbox.LaneRead{Lane: e.laneOf(keys[0]), After: p[3], Seen: seen}) {
				e.equal("KeyHash", row.KeyHash, outbox.KeyHash(row.Record.Message.Key))
				got[row.Record.ID] = row.KeyPrev
			}
			return got
		}
		hash := func(i int) int64 { return outbox.KeyHash([]byte(keys[i])) }
		want := map[outbox.ID]int64{last.ID: p[2], other.ID: p[3]}
		e.equal("nothing seen", prev(), want)
		e.equal("keys that are not there seen", prev(outbox.SeenKey{Hash: math.MinInt64, Pos: p[3]}, outbox.SeenKey{Hash: math.MaxInt64, Pos: p[3]}), want)
		e.equal("seen up to their first rows", prev(outbox.SeenKey{Hash: hash(0), Pos: p[0]}, outbox.SeenKey{Hash: hash(1), Pos: p[1]}), want)
		// Here the store may look no further, or say what it finds.
		for id, got := range prev(outbox.SeenKey{Hash: hash(0), Pos: p[2]}, outbox.SeenKey{Hash: hash(1), Pos: p[1]}) {
			if id == other.ID && got != p[3] || id == last.ID && got != 0 && got != p[2] {
				e.Errorf("one key is seen up to %d, the other up to %d: KeyPrev of %s is %d", p[2], p[1], id, got)
			}
		}
	}},
	{"P3_what_one_read_has_seen_is_not_seen_by_another", needManyWriter, func(e *env) {
		// One key may lie in two routes, and so in two lanes of one call.
		key := e.keysOfOneLane(1)[0]
		lane := e.laneOf(key)
		first := e.row(e.put(key))
		last := e.put(key)
		for other := lane - 1; other <= lane+1; other++ {
			if other == lane || !slices.Contains(e.orderedLanes(), other) {
				continue
			}
			reads := []outbox.LaneRead{{Lane: lane, After: first.Pos}, {Lane: other, After: first.Pos, Seen: []outbox.SeenKey{{Hash: first.KeyHash, Pos: math.MaxInt64}}}}
			slices.SortFunc(reads, func(a, b outbox.LaneRead) int { return cmp.Compare(a.Lane, b.Lane) })
			rows := e.hot(reads...)
			e.equal("rows", laneIDs(rows), []outbox.ID{last.ID})
			e.equal("KeyPrev of a key that another lane's read has seen", rows[0].KeyPrev, first.Pos)
			for i := range reads {
				if reads[i].Lane == lane {
					reads[i].Seen = []outbox.SeenKey{{Hash: first.KeyHash, Pos: first.Pos - 1}}
				}
			}
			e.equal("KeyPrev of a key that both have seen", e.hot(reads...)[0].KeyPrev, first.Pos)
		}
	}},
	{"P3_late_commit_is_named_by_key_prev", needManyWriter, func(e *env) {
		// T1 (key K) draws its position and stays open; T3 (another key) draws
		// the next one, commits and is read; T1 commits; T2 (K, after T1) commits.
		keys := e.keysOfOneLane(2)
		lane := e.laneOf(keys[0])
		r1, r2, r3 := e.rec(keys[0]), e.rec(keys[0]), e.rec(keys[1])
		t1 := e.begin()
		e.ok(t1.enlist(e.ctx, r1))
		e.enlist(r3)
		rows := e.hot(outbox.LaneRead{Lane: lane})
		e.equal("first read", laneIDs(rows), inOrder([]outbox.Record{r3}))
		cursor := rows[0].Pos
		e.ok(t1.commit())
		e.enlist(r2)
		rows = e.hot(outbox.LaneRead{Lane: lane, After: cursor})
		e.equal("read above the cursor", laneIDs(rows), inOrder([]outbox.Record{r2}))
		late := e.row(r1).Pos
		if late >= cursor {
			e.Fatalf("the late row has position %d, above %d: positions must be drawn when the row is enlisted", late, cursor)
		}
		e.equal("KeyPrev names the late row", rows[0].KeyPrev, late)
		e.equal("rows of the key", laneIDs(e.hot(outbox.LaneRead{Lane: lane, Keys: [][]byte{[]byte(keys[0])}})), inOrder([]outbox.Record{r1, r2}))
		e.equal("what a sweep below the cursor finds", laneIDs(e.hot(outbox.LaneRead{Lane: lane, UpTo: cursor})), inOrder([]outbox.Record{r1, r3}))
	}},
	{"P3_concurrent_producers_stay_in_order", needLanes, func(e *env) {
		// Producers of a key are serialised by a lock, as by a row of a business
		// table; their transactions stay open for a while, so that positions
		// commit out of order between keys. The reader keeps a cursor, trusts
		// KeyPrev and sweeps now and then.
		keys := append(e.keysOfOneLane(3), "elsewhere")
		const each = 25
		total := 0
		locks := make([]sync.Mutex, len(keys))
		next := make([]int, len(keys))
		var producers sync.WaitGroup
		for p := range 2 * len(keys) {
			total += each
			producers.Add(1)
			go func() {
				defer producers.Done()
				k := p % len(keys)
				for i := range each {
					locks[k].Lock()
					rec := e.rec(keys[k])
					rec.Message.Body = strconv.AppendInt(nil, int64(next[k]), 10)
					tx, err := e.fix.begin(e.ctx)
					if err == nil {
						if err = tx.enlist(e.ctx, rec); err == nil {
							time.Sleep(time.Duration((i*7+p*3)%5) * time.Millisecond)
							err = tx.commit()
						} else {
							_ = tx.rollback()
						}
					}
					if err != nil {
						e.Errorf("producer: %v", err)
					}
					next[k]++
					locks[k].Unlock()
				}
			}()
		}
		o := e.owner()
		o.acquireAll()
		cursor := map[outbox.Lane]int64{e.laneOf(keys[0]): 0, e.laneOf("elsewhere"): 0}
		sent := map[string]int{}
		done := map[outbox.ID]bool{}
		deliver := func(row outbox.LaneRow) {
			if done[row.Record.ID] {
				return
			}
			key := string(row.Record.Message.Key)
			if got, want := string(row.Record.Message.Body), strconv.Itoa(sent[key]); got != want {
				e.Fatalf("key %s: message %s is sent in the place of %s", key, got, want)
			}
			sent[key]++
			done[row.Record.ID] = true
			o.one("accepted", o.outcome(row, outbox.SettleAccepted), outbox.Settled)
		}
		idle := 0
		for round := 0; len(done) < total; round++ {
			before := len(done)
			for lane := range cursor {
				after := cursor[lane]
				if round%8 == 7 {
					after = 0 // what committed below the cursor
				}
				for _, row := range e.hot(outbox.LaneRead{Lane: lane, After: after}) {
					if row.KeyPrev != 0 || row.Pos <= cursor[lane] {
						for _, late := range e.hot(outbox.LaneRead{Lane: lane, Keys: [][]byte{row.Record.Message.Key}}) {
							deliver(late)
						}
					}
					deliver(row)
					cursor[lane] = max(cursor[lane], row.Pos)
				}
			}
			if idle++; len(done) > before {
				idle = 0
			}
			if idle > 5000 {
				e.Fatalf("%d of %d messages were found", len(done), total)
			}
			time.Sleep(time.Millisecond)
		}
		producers.Wait()
		e.equal("left", e.count(e.now), int64(0))
	}},
	{"P3_no_rows_no_reads", needLanes, func(e *env) {
		n, err := e.lanes().ReadLanes(e.ctx, nil, make([]outbox.LaneRow, 4))
		e.ok(err)
		e.equal("rows", n, 0)
		e.equal("rows of an empty lane", len(e.hot(outbox.LaneRead{Lane: 1}, outbox.LaneRead{Lane: 2})), 0)
	}},
}
