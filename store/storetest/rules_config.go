package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
)

// confirmed checks what operators learn about the lanes.
func (e *env) confirmed(what string, want bool, lanes ...outbox.Lane) {
	e.Helper()
	ok, err := e.store.(outbox.Confirmer).Confirmed(e.ctx, lanes)
	e.ok(err)
	e.equal("confirmed "+what, ok, want)
}

// keyElsewhere is a key of another lane.
func (e *env) keyElsewhere(key string) string {
	e.Helper()
	for i := range 10_000 {
		if other := fmt.Sprint("other-", i); e.laneOf(other) != e.laneOf(key) {
			return other
		}
	}
	e.Skip("the route has one ordered lane")
	return ""
}

var configRules = []rule{
	{"P4_move_under_an_old_config_moves_nothing", needMover, func(e *env) {
		// Moved by an owner that does not know the key is parked, its first row
		// would be out of sight, and the next one would be sent.
		keys := e.keysOfOneLane(2)
		key, other := keys[0], e.keyElsewhere(keys[0])
		recs := []outbox.Record{e.rec(key), e.rec(key), e.rec(other)}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		e.park(other)
		o.acquire(0)
		e.park(key)
		moved, done := o.move(100)
		e.equal("moved of a lane whose config is known", fmt.Sprint(moved, done), "1 []")
		e.equal("hot", []bool{e.isHot(recs[0]), e.isHot(recs[1]), e.isHot(recs[2])}, []bool{true, true, false})
		o.acquire(0)
		e.park(keys[1])
		moved, _ = o.move(100)
		e.equal("moved after another key of the lane was parked", moved, 0)
		moved, _ = o.moveParked(100)
		e.equal("moved under a renewed lease", moved, 2)
		e.unpark(key)
		moved, done = o.move(100)
		e.equal("brought back under the old config", fmt.Sprint(moved, done), "0 []")
		e.equal("eligible", e.count(e.now), int64(0))
		moved, done = o.moveParked(100)
		e.equal("brought back", fmt.Sprint(moved, done), fmt.Sprintf("2 [%s]", key))
		e.park(key)
		o.acquire(0)
		lease := o.leases[e.laneOf(key)]
		lease.Config++
		o.leases = map[outbox.Lane]outbox.LaneLease{lease.Lane: lease}
		moved, _ = o.move(100)
		e.equal("moved under a config that is still to come", moved, 0)
	}},
	{"P4_confirmed_when_the_owner_has_seen_the_config", needConfirm, func(e *env) {
		for range 3 {
			e.put("k")
		}
		lane, other := e.laneOf("k"), e.laneOf(e.keyElsewhere("k"))
		e.confirmed("of no lanes", true)
		e.confirmed("without an owner", true, lane, other)
		o := e.owner()
		o.acquireAll()
		e.confirmed("without a command", true, lane, other, lane)
		e.park("k")
		e.confirmed("after the command", false, lane)
		e.confirmed("of another lane", true, other)
		e.confirmed("of both", false, other, lane)
		o.move(100)
		e.confirmed("after a move under the old config", false, lane)
		o.acquire(0)
		e.confirmed("after a renewal alone", false, lane)
		moved, _ := o.move(3)
		e.equal("moved", moved, 3)
		e.confirmed("while there may be more to move", false, lane)
		o.move(3)
		e.confirmed("after the move", true, lane, other)
		o.acquire(0)
		e.confirmed("after another renewal", true, lane)
		e.unpark("k")
		e.confirmed("after the next command", false, lane)
		o.move(100)
		e.confirmed("after a move under the config before", false, lane)
		o.moveParked(100)
		e.confirmed("after the move back", true, lane, other)
		for _, n := range []outbox.Lane{0, -1, 1 << 30} {
			if _, err := e.store.(outbox.Confirmer).Confirmed(e.ctx, []outbox.Lane{lane, n}); !errors.Is(err, outbox.ErrInvalidArgument) {
				e.Errorf("Confirmed of lane %d: got %v, want ErrInvalidArgument", n, err)
			}
		}
	}},
	{"P4_confirmed_where_nobody_sends", needConfirm, func(e *env) {
		lane := e.laneOf("k")
		a, b := e.owner(), e.owner()
		a.acquireAll()
		e.park("k")
		e.confirmed("beside a live owner", false, lane)
		a.release(a.leases[lane])
		e.confirmed("of a lane given back", true, lane)
		b.acquire(1 << 20)
		if _, ok := b.leases[lane]; !ok {
			e.Fatalf("the second relay did not get the free lane %d: %v", lane, b.list())
		}
		e.confirmed("beside a new owner that has not seen it", false, lane)
		b.moveParked(10)
		e.confirmed("beside a new owner that has", true, lane)
		e.unpark("k")
		e.confirmed("after the next command", false, lane)
		b.end()
		e.confirmed("after the owner's end", true, lane)
	}},
	{"P4_confirmed_when_the_owner_has_expired", needConfirm, func(e *env) {
		lane := e.laneOf("k")
		o := e.owner()
		o.ttl = 3 * time.Second // a slow machine needs it to park
		o.acquireAll()
		e.park("k")
		e.confirmed("beside a live owner", false, lane)
		e.fix.sleep(o.ttl + 100*time.Millisecond)
		e.confirmed("beside an expired owner", true, lane)
	}},
	{"P4_replay_has_to_be_confirmed", needConfirm, func(e *env) {
		if e.dead() == nil {
			e.Skip("no DeadLetters")
		}
		r := e.put("k")
		lane := e.laneOf("k")
		o := e.owner()
		o.acquireAll()
		o.bury(r)
		e.confirmed("after a death", true, lane)
		_, err := e.dead().ReplayDead(e.ctx, "test", r.ID)
		e.ok(err)
		e.confirmed("after the replay", false, lane)
		o.moveParked(10)
		e.confirmed("when the owner looks again", true, lane)
	}},
}
