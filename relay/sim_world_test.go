package relay

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/storetest"
)

var (
	simSeeds = flag.Int("sim.seeds", 100, "seeds of TestSimulation")
	simFirst = flag.Uint64("sim.first", 1, "first seed of TestSimulation")
	simFor   = flag.Duration("sim.for", 0, "begin no seed after that long; 0 = run all")
	simTrace = flag.Bool("sim.trace", false, "print what happened")
	simUntil = flag.String("sim.until", "", "go on over seeds that fail until one breaks this invariant")
)

// newID is a UUIDv7 out of the run's own randomness.
func (s *sim) newID() (id outbox.ID) {
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16|0x7000|uint64(s.intn(1<<12)))
	binary.BigEndian.PutUint64(id[8:], 1<<63|s.rng.Uint64()>>2)
	return id
}

func (s *sim) serverNow() time.Time {
	since := time.Since(s.start)
	return s.start.Add(s.plan.offset + since + time.Duration(float64(since)*s.plan.drift))
}

// produce runs one transaction of a producer, and then the next one.
func (s *sim) produce(left int) {
	if left == 0 {
		s.producing--
		return
	}
	k := s.intn(s.plan.keys)
	if s.locked[k] {
		s.after(s.ms(5), func() { s.produce(left) }) // waits for the row lock
		return
	}
	s.locked[k] = true
	name := fmt.Sprint("k", k)
	number := s.numbers[k]
	tx := s.mem.Begin()
	var recs []outbox.Record
	add := func(key string, number int) {
		m := &simMessage{id: s.newID(), key: key, number: number}
		s.messages[m.id] = m
		rec := outbox.Record{ID: m.id, Transport: "default", Type: "sim.v1", CreatedAt: time.Now(),
			Message: outbox.Message{Destination: "d", Event: outbox.Event{Source: "/sim"}}}
		if key != "" {
			rec.Message.Key = []byte(key)
		} else if s.chance(0.3) {
			rec.Message.DeliverAt = s.serverNow().Add(s.ms(3000))
			m.due = rec.Message.DeliverAt
		}
		recs = append(recs, rec)
	}
	for range 1 + s.intn(3) {
		number++
		add(name, number)
	}
	if s.chance(0.4) {
		add("", 0)
	}
	if err := s.mem.Enlist(context.Background(), tx, recs...); err != nil {
		s.breaks("enlist", "%v", err)
		return
	}
	hold := s.ms(2)
	switch x := s.rng.Float64(); {
	case x < 0.3:
		hold = s.ms(30)
	case x < 0.35:
		hold = 500 * time.Millisecond
	case x < 0.36:
		hold = 3 * time.Second
	}
	s.after(hold, func() {
		if s.chance(0.1) {
			_ = tx.Rollback()
			for _, rec := range recs {
				s.messages[rec.ID].rolled = true
			}
		} else {
			if err := tx.Commit(); err != nil {
				s.breaks("commit", "%v", err)
			}
			s.numbers[k] = number
			for _, rec := range recs {
				s.messages[rec.ID].committed = true
			}
			for _, r := range s.relays {
				if !r.dead && s.chance(0.3) {
					r.e.wake()
				}
			}
		}
		delete(s.locked, k)
		s.after(s.ms(30), func() { s.produce(left - 1) })
	})
}

// disturb does something to the relays, the broker or the keys now and then.
func (s *sim) disturb() {
	if s.calm {
		return
	}
	var live []*simRelay
	for _, r := range s.relays {
		if !r.dead && !r.stopped {
			live = append(live, r)
		}
	}
	if len(live) > 0 {
		r := live[s.intn(len(live))]
		switch x := s.rng.Float64(); {
		case x < 0.25:
			s.kill(r)
		case x < 0.4:
			s.stop(r, func() { s.after(s.ms(300), func() { s.newRelay() }) })
		case x < 0.55:
			s.freeze(r, s.ms(5000))
		case x < 0.7:
			s.outage = true
			s.note("the broker is gone")
			s.after(s.ms(3000), func() { s.outage = false; s.note("the broker is back") })
		case x < 0.78:
			s.cut = true
			s.note("the store is gone")
			s.after(s.ms(5000), func() { s.cut = false; s.note("the store is back") })
		case x < 0.86:
			r.hang = time.Now().Add(s.ms(3000))
			s.note("relay %d's way to the store is slow", r.name)
		case x < 0.95:
			s.park(fmt.Sprint("k", s.intn(s.plan.keys)))
		}
	}
	s.after(s.ms(2500), s.disturb)
}

// operate lets everything go that waits for a person, and tells how much did.
func (s *sim) operate() int {
	ctx := context.Background()
	keys, err := s.mem.ParkedKeys(ctx, nil)
	if err != nil {
		s.breaks("operate", "%v", err)
	}
	left := 0
	for _, k := range keys {
		if string(k.Key) != "killer" {
			left++
			s.unpark(string(k.Key))
		}
	}
	dead := make([]outbox.DeadLetter, 64)
	n, err := s.mem.ListDead(ctx, outbox.DeadQuery{}, dead)
	if err != nil {
		s.breaks("operate", "%v", err)
	}
	for _, d := range dead[:n] {
		m := s.messages[d.Record.ID]
		m.died = true
		if m.killer {
			continue
		}
		left++
		m.counted, m.retry = 0, time.Time{}
		for _, r := range s.relays {
			delete(r.rules.accepted, m)
		}
		if _, err := s.mem.ReplayDead(ctx, "op", d.Record.ID); err != nil {
			s.breaks("operate", "%v", err)
		}
		s.seen["replay"]++
	}
	return left
}

// simulate runs one seed and returns what it broke.
func simulate(seed uint64) *sim {
	s := &sim{
		rng: rand.New(rand.NewPCG(seed, 7)), start: time.Now(), seen: map[string]int{},
		locked: map[int]bool{}, messages: map[outbox.ID]*simMessage{}, epochs: map[outbox.Lane]int64{}, parkings: map[string]*parking{},
	}
	p := &s.plan
	p.keys, p.relays, p.producers, p.orders = 1+s.intn(8), 1+s.intn(3), 1+s.intn(4), 10+s.intn(20)
	p.ordered, p.unordered = 1+s.intn(4), 1+s.intn(2)
	p.pipelined = s.chance(0.3)
	p.killer, p.hot = s.chance(0.2), s.chance(0.1)
	if s.chance(0.5) || p.killer {
		p.attempts = 3
	}
	if s.chance(0.5) {
		p.poison = ParkKey
	}
	if !p.killer {
		p.refuse = s.rng.Float64() * 0.2
	}
	p.unknown, p.unroutable = s.rng.Float64()*0.04, s.rng.Float64()*0.01
	p.faults, p.late, p.stalls = s.rng.Float64()*0.01, s.rng.Float64()*0.1, s.rng.Float64()*0.01
	p.offset = time.Duration(s.intn(3)-1) * time.Hour
	if s.chance(0.3) {
		p.freeze = s.rng.Float64() * 0.02
	}
	p.renewLate = s.chance(0.15)
	p.pace = 0.3
	if s.chance(0.2) {
		p.pace = 150 // a transport that is slow to take messages
	}
	p.drift = (s.rng.Float64() - 0.5) * 0.01
	s.numbers = make([]int, p.keys)
	s.mem = storetest.NewMem(&storetest.MemOptions{
		Routes: []outbox.Route{{Name: "default", Ordered: p.ordered, Unordered: p.unordered}}, Now: s.serverNow,
	})
	if p.killer {
		s.after(s.ms(400), func() {
			tx := s.mem.Begin()
			m := &simMessage{id: s.newID(), committed: true, killer: true}
			s.messages[m.id] = m
			rec := outbox.Record{ID: m.id, Transport: "default", Type: "sim.v1", CreatedAt: time.Now(),
				Message: outbox.Message{Destination: "d", Event: outbox.Event{Source: "/sim"}}}
			if s.chance(0.5) {
				m.key = "killer"
				rec.Message.Key = []byte(m.key)
			}
			if err := s.mem.Enlist(context.Background(), tx, rec); err != nil {
				s.breaks("enlist", "%v", err)
			}
			_ = tx.Commit()
		})
	}
	if p.hot {
		tx := s.mem.Begin()
		var recs []outbox.Record
		for range 300 {
			s.numbers[0]++
			m := &simMessage{id: s.newID(), key: "k0", number: s.numbers[0], committed: true}
			s.messages[m.id] = m
			recs = append(recs, outbox.Record{ID: m.id, Transport: "default", Type: "sim.v1", CreatedAt: time.Now(),
				Message: outbox.Message{Destination: "d", Key: []byte("k0"), Event: outbox.Event{Source: "/sim"}}})
		}
		if err := s.mem.Enlist(context.Background(), tx, recs...); err != nil {
			s.breaks("enlist", "%v", err)
		}
		_ = tx.Commit()
	}
	for range p.relays {
		s.newRelay()
	}
	for range p.producers {
		s.producing++
		s.after(s.ms(50), func() { s.produce(p.orders) })
	}
	s.after(s.ms(2500), s.disturb)
	s.run(5*time.Minute, func() bool { return s.producing == 0 || len(s.broken) > 0 })

	// Calm: what is left drains.
	s.calm, s.outage, s.cut = true, false, false
	s.note("calm")
	deadline := time.Now().Add(5 * time.Minute)
	for time.Now().Before(deadline) && len(s.broken) == 0 {
		s.run(500*time.Millisecond, nil)
		waiting := s.operate()
		n, err := s.mem.PendingCount(context.Background(), s.serverNow().Add(time.Hour))
		if err != nil {
			s.breaks("pending", "%v", err)
		}
		if n == 0 && waiting == 0 {
			break
		}
	}
	stops := 0
	for _, r := range slices.Clone(s.relays) {
		if !r.dead && !r.stopped {
			stops++
			s.stop(r, func() { stops-- })
		}
	}
	s.run(time.Minute, func() bool { return stops == 0 })
	if stops > 0 && len(s.broken) == 0 {
		s.breaks("P8", "%d relays did not stop within a minute", stops)
	}
	for _, r := range s.relays {
		r.e.window.end()
	}
	if len(s.broken) == 0 {
		s.judge()
	}
	return s
}

// judge checks what has to hold at the end.
func (s *sim) judge() {
	last := map[string]int{}
	again := map[outbox.ID]bool{}
	for _, m := range s.arrived {
		if again[m.id] {
			s.seen["duplicate"]++
			continue
		}
		again[m.id] = true
		if m.key == "" || m.died {
			continue // a replayed message comes after those that went on
		}
		if m.number < last[m.key] {
			s.breaks("order", "%v arrived after %s/%d", m, m.key, last[m.key])
		}
		last[m.key] = m.number
	}
	ids := slices.SortedFunc(maps.Keys(s.messages), func(a, b outbox.ID) int { return strings.Compare(string(a[:]), string(b[:])) })
	for _, id := range ids {
		m := s.messages[id]
		switch place := s.mem.Place(id); {
		case m.killer:
			if place != "dead" && place != "parked" {
				s.breaks("killer", "the message that kills its sender is %q, neither dead nor parked", place)
			}
		case m.rolled && m.got > 0:
			s.breaks("phantom", "%v was rolled back and arrived", m)
		case m.committed && m.got == 0:
			s.breaks("lost", "%v was committed and never arrived; it is %q", m, place)
		case m.committed && place != "":
			s.breaks("left", "%v is %q after everything drained", m, place)
		}
	}
	if s.plan.killer && s.plan.refuse == 0 {
		for _, id := range ids {
			if m := s.messages[id]; m.died && !m.killer && m.counted == 0 && s.plan.unroutable == 0 {
				s.breaks("killer", "%v died beside the message that kills", m)
			}
		}
	}
}

// mustSee are the transitions that a run of many seeds has to meet.
var mustSee = append([]string{
	"answer lost", "answer of the broker lost", "call lost", "clean stop", "duplicate", "freeze", "kill", "kill with sends in flight",
	"killed by a message", "parking confirmed", "refused", "replay", "shed tail",
}, eventNames[:]...)

func TestSimulation(t *testing.T) {
	t.Parallel()
	// Runs leave much garbage and keep little: with the default two thirds of
	// the time are spent collecting it.
	percent := debug.SetGCPercent(800)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	var mu sync.Mutex
	total := map[string]int{}
	workers := runtime.GOMAXPROCS(0)
	var over atomic.Bool // a seed has failed
	late := func() bool { return false }
	if began := time.Now(); *simFor > 0 {
		late = func() bool { return time.Since(began) > *simFor }
	}
	t.Run("seeds", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprint("worker", w), func(t *testing.T) {
				t.Parallel()
				for i := w; i < *simSeeds && !over.Load() && !late(); i += workers {
					seed := *simFirst + uint64(i)
					met := *simUntil == ""
					var s *sim
					synctest.Test(t, func(*testing.T) { s = simulate(seed) })
					if *simTrace || len(s.broken) > 0 && *simUntil == "" {
						for _, line := range s.log {
							t.Log(line)
						}
					}
					for i, b := range s.broken {
						if i < 10 {
							t.Errorf("seed %d: %s", seed, b)
						}
						met = met || strings.HasPrefix(b, *simUntil+":")
					}
					mu.Lock()
					for k, n := range s.seen {
						total[k] += n
					}
					total["seeds"]++
					total["events"] += s.events
					total["messages"] += len(s.messages)
					mu.Unlock()
					if t.Failed() && met {
						over.Store(true)
						t.Fatalf("replay with -run 'TestSimulation$' -sim.first=%d -sim.seeds=1", seed)
					}
				}
			})
		}
	})
	for _, k := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%9d %s", total[k], k)
	}
	if total["seeds"] < 500 {
		return // too few to meet everything
	}
	for _, k := range mustSee {
		if total[k] == 0 {
			t.Errorf("%q never happened in %d seeds: the proof does not cover it", k, total["seeds"])
		}
	}
}

// TestSimulationReplays: a seed that fails can be looked at.
func TestSimulationReplays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		var first *sim
		for range 2 {
			synctest.Test(t, func(t *testing.T) {
				s := simulate(1000 + seed)
				if first == nil {
					first = s
				} else if s.digest != first.digest || s.events != first.events {
					for i := range min(len(s.log), len(first.log)) {
						if s.log[i] != first.log[i] {
							t.Fatalf("seed %d ran differently: line %d was %q, now %q", 1000+seed, i, first.log[i], s.log[i])
						}
					}
					t.Fatalf("seed %d ran differently: %d events, now %d", 1000+seed, first.events, s.events)
				}
			})
		}
	}
}
