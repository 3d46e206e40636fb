package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/storetest"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/transporttest"
)

// rig is a store in memory and a recorder, inside a synctest bubble.
type rig struct {
	t   *testing.T
	mem *storetest.Mem
	rec *transporttest.Recorder
	seq map[string]int
}

func newRig(t *testing.T, mem *storetest.MemOptions, rec *transporttest.Options) *rig {
	return &rig{t: t, mem: storetest.NewMem(mem), rec: transporttest.NewRecorder(rec), seq: map[string]int{}}
}

// record makes the next message of a key; "" is unordered. The body numbers
// the key's messages.
func (g *rig) record(key string) outbox.Record {
	g.seq[key]++
	r := outbox.Record{
		ID: outbox.NewID(), Transport: "default", Type: "test.made.v1", CreatedAt: time.Now(),
		Message: outbox.Message{Destination: "test", Body: fmt.Appendf(nil, "%s/%d", key, g.seq[key]), Event: outbox.Event{Source: "/test"}},
	}
	if key != "" {
		r.Message.Key = []byte(key)
	}
	return r
}

func (g *rig) enlist(tx *storetest.MemTx, recs ...outbox.Record) {
	g.t.Helper()
	if err := g.mem.Enlist(context.Background(), tx, recs...); err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) commit(recs ...outbox.Record) {
	g.t.Helper()
	tx := g.mem.Begin()
	g.enlist(tx, recs...)
	if err := tx.Commit(); err != nil {
		g.t.Fatal(err)
	}
}

// start runs a relay until stop is called, which returns Run's error.
func (g *rig) start(store outbox.Store, opts *relay.Options) (r *relay.Relay, stop func() error) {
	g.t.Helper()
	r, err := relay.New(store, map[string]transport.Transport{"default": g.rec}, opts)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

func (g *rig) accepted() (bodies []string) {
	for _, s := range g.rec.Accepted() {
		bodies = append(bodies, string(s.Record.Message.Body))
	}
	return bodies
}

func (g *rig) pending() int64 {
	g.t.Helper()
	n, err := g.mem.PendingCount(context.Background(), time.Now().Add(24*time.Hour))
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

func (g *rig) dead() int64 {
	g.t.Helper()
	n, err := g.mem.CountDead(context.Background(), "")
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

// inOrder fails unless each key's first deliveries are numbered 1, 2, 3, ...
func (g *rig) inOrder() {
	g.t.Helper()
	next := map[string]int{}
	for _, s := range g.rec.First() {
		key := string(s.Record.Message.Key)
		if key == "" {
			continue
		}
		next[key]++
		if want := fmt.Sprintf("%s/%d", key, next[key]); want != string(s.Record.Message.Body) {
			g.t.Fatalf("P3: key %s was delivered %s when %s was due", key, s.Record.Message.Body, want)
		}
	}
	if v := g.rec.Violations(); len(v) > 0 {
		g.t.Fatalf("P3: %v", v)
	}
}

func (g *rig) stop(stop func() error) {
	g.t.Helper()
	if err := stop(); err != nil {
		g.t.Errorf("P8: Run returned %v", err)
	}
}

func TestRelayDeliversInOrderPerKey(t *testing.T) {
	t.Parallel()
	for _, pipelined := range []bool{false, true} {
		t.Run(fmt.Sprintf("pipelined=%v", pipelined), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, nil, &transporttest.Options{Latency: time.Millisecond, Pipelined: pipelined})
				const keys, each, unordered = 40, 50, 300
				for range each {
					var recs []outbox.Record
					for k := range keys {
						recs = append(recs, g.record(fmt.Sprint("k", k)))
					}
					g.commit(recs...)
				}
				for range unordered {
					g.commit(g.record(""))
				}
				_, stop := g.start(g.mem, nil)
				time.Sleep(3 * time.Second)
				g.stop(stop)
				if n := len(g.rec.Accepted()); n != keys*each+unordered {
					t.Fatalf("delivered %d messages, want %d, each once", n, keys*each+unordered)
				}
				g.inOrder()
				if n := g.pending(); n != 0 {
					t.Fatalf("%d rows left", n)
				}
			})
		})
	}
}

// TestLateCommitBelowCursor is the schedule in which a reader that trusts its
// cursor inverts a key: T1 (key K) draws 1; T3 (another key, same lane) draws 2,
// commits and is read; T1 commits; T2 (K, which waited for the lock) draws 3 and
// commits. A read above the cursor returns 3 without 1.
func TestLateCommitBelowCursor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, &storetest.MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 1, Unordered: 1}}}, nil)
		r, stop := g.start(g.mem, &relay.Options{PollMin: time.Second, PollMax: time.Hour})
		synctest.Wait()
		for i := range 20 {
			k := fmt.Sprint("K", i)
			t1, t3 := g.mem.Begin(), g.mem.Begin()
			g.enlist(t1, g.record(k))
			g.enlist(t3, g.record("other"))
			if err := t3.Commit(); err != nil {
				t.Fatal(err)
			}
			r.Wake()
			synctest.Wait() // read, sent, settled: the cursor stands at 2
			time.Sleep(3 * time.Millisecond)
			if err := t1.Commit(); err != nil {
				t.Fatal(err)
			}
			g.commit(g.record(k))
			r.Wake()
			synctest.Wait()
			time.Sleep(5 * time.Second) // lets every sweep run before the next round
		}
		g.stop(stop)
		if n := len(g.rec.Accepted()); n != 60 {
			t.Fatalf("delivered %d messages, want 60", n)
		}
		g.inOrder()
	})
}

func TestRefusedKeyWaitsAndOthersGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, &storetest.MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 1, Unordered: 1}}}, &transporttest.Options{
			Script: func(d *transport.Delivery, nth int) transporttest.Reply {
				if string(d.Record.Message.Body) == "bad/1" && nth < 4 {
					return transporttest.Reply{Outcome: transport.Refused}
				}
				return transporttest.Reply{Outcome: transport.Accepted, After: time.Millisecond}
			}})
		g.commit(g.record("bad"), g.record("bad"), g.record("good"), g.record("good"), g.record("bad"))
		_, stop := g.start(g.mem, &relay.Options{BackoffMin: 10 * time.Second, BackoffMax: 20 * time.Second})
		time.Sleep(50 * time.Millisecond)
		if got := g.accepted(); !slices.Equal(got, []string{"good/1", "good/2"}) {
			t.Fatalf("P3: while bad waits, delivered %v", got)
		}
		time.Sleep(2 * time.Minute)
		g.stop(stop)
		if got := g.accepted(); !slices.Equal(got[2:], []string{"bad/1", "bad/2", "bad/3"}) {
			t.Fatalf("P3: after the retries, delivered %v", got)
		}
		for _, s := range g.rec.Accepted() {
			if string(s.Record.Message.Body) == "bad/1" && (s.Record.Attempts != 3 || s.Record.LastError == "") {
				t.Errorf("C5: attempts %d, last error %q; want 3 and a reason", s.Record.Attempts, s.Record.LastError)
			}
		}
	})
}

func TestFailureEndsAmongTheDead(t *testing.T) {
	t.Parallel()
	for _, o := range []transport.Outcome{transport.Permanent, transport.Refused} {
		t.Run(o.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var died []string
				g := newRig(t, nil, &transporttest.Options{Script: func(d *transport.Delivery, nth int) transporttest.Reply {
					if b := string(d.Record.Message.Body); b == "k/1" || b == "/1" {
						return transporttest.Reply{Outcome: o, Err: errors.New("no such thing")}
					}
					return transporttest.Reply{Outcome: transport.Accepted}
				}})
				g.commit(g.record("k"), g.record("k"), g.record(""), g.record(""))
				var mu sync.Mutex
				_, stop := g.start(g.mem, &relay.Options{MaxAttempts: 3, Hooks: relay.Hooks{Dead: func(_ string, _ outbox.ID, reason string) {
					mu.Lock()
					died = append(died, reason)
					mu.Unlock()
				}}})
				time.Sleep(time.Minute)
				g.stop(stop)
				got := g.accepted()
				slices.Sort(got)
				if !slices.Equal(got, []string{"/2", "k/2"}) || g.dead() != 2 || g.pending() != 0 {
					t.Fatalf("P4: delivered %v, %d dead, %d pending; want k/2 and /2, 2, 0", got, g.dead(), g.pending())
				}
				if !slices.Equal(died, []string{"no such thing", "no such thing"}) {
					t.Errorf("P9: Dead hook saw %q", died)
				}
				want := 6
				if o == transport.Permanent {
					want = 2
				}
				if n := len(g.rec.Sent()) - 2; n != want {
					t.Errorf("P5: %s messages were sent %d times, want %d", o, n, want)
				}
			})
		})
	}
}

func TestOutageSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	for _, o := range []transport.Outcome{transport.Unreachable, transport.Unknown, transport.Unsent} {
		t.Run(o.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var sends int
				var mu sync.Mutex
				g := newRig(t, nil, &transporttest.Options{Script: func(d *transport.Delivery, nth int) transporttest.Reply {
					mu.Lock()
					defer mu.Unlock()
					sends++
					if time.Since(start) < 10*time.Minute {
						return transporttest.Reply{Outcome: o, After: time.Millisecond}
					}
					return transporttest.Reply{Outcome: transport.Accepted}
				}})
				for range 20 {
					g.commit(g.record("a"), g.record("b"), g.record(""))
				}
				var states []bool
				_, stop := g.start(g.mem, &relay.Options{MaxAttempts: 2, Hooks: relay.Hooks{Route: func(_ string, err error) {
					mu.Lock()
					states = append(states, err == nil)
					mu.Unlock()
				}}})
				time.Sleep(10 * time.Minute)
				mu.Lock()
				if sends > 2000 {
					t.Errorf("D2: %d sends in ten minutes of outage: that is a hot loop", sends)
				}
				mu.Unlock()
				time.Sleep(5 * time.Minute)
				g.stop(stop)
				if g.dead() != 0 || g.pending() != 0 || len(g.rec.Accepted()) != 60 {
					t.Fatalf("P5: %d dead, %d pending, %d delivered after an outage; want 0, 0, 60", g.dead(), g.pending(), len(g.rec.Accepted()))
				}
				for _, s := range g.rec.Accepted() {
					if s.Record.Attempts != 0 {
						t.Errorf("P5: message %s has %d attempts after an outage", s.Record.Message.Body, s.Record.Attempts)
					}
				}
				if !slices.Equal(states, []bool{false, true}) {
					t.Errorf("D8: route hook saw %v, want one loss and one return", states)
				}
				g.inOrder()
			})
		})
	}
}

func TestRelaysShareLanesAndHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, &transporttest.Options{Latency: time.Millisecond})
		held := make([]int, 3)
		var mu sync.Mutex
		stops := make([]func() error, 3)
		startAt := func(i int) {
			_, stops[i] = g.start(g.mem, &relay.Options{TTL: 3 * time.Second, Hooks: relay.Hooks{Lanes: func(ls []outbox.LaneLease) {
				mu.Lock()
				held[i] = len(ls)
				mu.Unlock()
			}}})
		}
		expect := func(when string, want ...int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(held, want) {
				t.Fatalf("P2: %s the relays hold %v lanes, want %v", when, held, want)
			}
		}
		stopProducer := make(chan struct{})
		produced := make(chan int)
		go func() {
			n := 0
			for {
				select {
				case <-stopProducer:
					produced <- n
					return
				case <-time.After(2 * time.Millisecond):
					g.commit(g.record(fmt.Sprint("k", n%30)))
					n++
				}
			}
		}()
		startAt(0)
		time.Sleep(time.Second)
		expect("alone", 24, 0, 0)
		startAt(1)
		time.Sleep(3 * time.Second)
		expect("with a second", 12, 12, 0)
		startAt(2)
		time.Sleep(3 * time.Second)
		expect("with a third", 8, 8, 8)
		g.stop(stops[1])
		time.Sleep(1500 * time.Millisecond)
		mu.Lock()
		held[1] = 0
		mu.Unlock()
		expect("after a clean stop", 12, 0, 12)
		close(stopProducer)
		n := <-produced
		time.Sleep(2 * time.Second)
		g.stop(stops[0])
		g.stop(stops[2])
		if got := len(g.rec.Accepted()); got != n {
			t.Fatalf("C9: %d deliveries of %d messages: a clean hand-over makes no duplicate and loses none", got, n)
		}
		g.inOrder()
	})
}

func TestStopWritesOutcomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, &transporttest.Options{Latency: 500 * time.Millisecond})
		for i := range 100 {
			g.commit(g.record(fmt.Sprint("k", i)))
		}
		_, stop := g.start(g.mem, nil)
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		g.stop(stop)
		if took := time.Since(began); took > time.Second {
			t.Errorf("P8: the stop took %v", took)
		}
		if int(g.pending()) != 100-len(g.rec.Accepted()) {
			t.Fatalf("P8: %d pending and %d accepted after a clean stop of 100", g.pending(), len(g.rec.Accepted()))
		}
		_, stop = g.start(g.mem, nil)
		time.Sleep(2 * time.Second)
		g.stop(stop)
		if n := len(g.rec.Accepted()); n != 100 || g.pending() != 0 {
			t.Fatalf("P8: after a second run %d deliveries of 100, %d pending", n, g.pending())
		}
	})
}

func TestStopGivesUpOnADeafTransport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, &transporttest.Options{Script: func(*transport.Delivery, int) transporttest.Reply {
			return transporttest.Reply{Outcome: transport.Accepted, Silent: true}
		}})
		g.commit(g.record("k"))
		_, stop := g.start(g.mem, &relay.Options{Grace: 2 * time.Second})
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		_ = stop()
		if took := time.Since(began); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("P8: the stop took %v with a grace of 2 s", took)
		}
		if g.pending() != 1 {
			t.Errorf("P8: the unanswered message must stay pending")
		}
	})
}

func TestScheduledMessageGoesWhenDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, nil)
		due := time.Now().Add(time.Minute)
		late := g.record("k")
		late.Message.DeliverAt = due
		g.commit(late, g.record("k"))
		_, stop := g.start(g.mem, nil)
		time.Sleep(59 * time.Second)
		if got := g.accepted(); !slices.Equal(got, []string{"k/2"}) {
			t.Fatalf("R4: before its time, delivered %v: a schedule must not hold back its key", got)
		}
		time.Sleep(2 * time.Second)
		g.stop(stop)
		sent := g.rec.Accepted()
		if len(sent) != 2 || sent[1].At.Before(due) {
			t.Fatalf("R4: delivered %v", g.accepted())
		}
	})
}

func TestUndecodableRowTakesNoNeighbourAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, nil)
		a, b, c := g.record("k"), g.record("k"), g.record("k")
		g.commit(a, b, c)
		g.mem.Corrupt(b.ID, errors.New("headers: truncated"))
		_, stop := g.start(g.mem, nil)
		time.Sleep(time.Second)
		g.stop(stop)
		if got := g.accepted(); !slices.Equal(got, []string{"k/1", "k/3"}) || g.dead() != 1 {
			t.Fatalf("R8: delivered %v, %d dead", got, g.dead())
		}
	})
}

func TestParkedKeyWaitsForTheOperator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, nil)
		_, stop := g.start(g.mem, &relay.Options{TTL: 3 * time.Second})
		time.Sleep(time.Second)
		if _, err := g.mem.ParkKey(t.Context(), outbox.ParkedKey{Route: "default", Key: []byte("k"), By: "op", Why: "test"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // a renewal
		g.commit(g.record("k"), g.record("other"), g.record("k"))
		time.Sleep(5 * time.Second)
		g.commit(g.record("k"))
		time.Sleep(5 * time.Second)
		if got := g.accepted(); !slices.Equal(got, []string{"other/1"}) {
			t.Fatalf("P4: while k is parked, delivered %v", got)
		}
		if _, err := g.mem.UnparkKey(t.Context(), "default", []byte("k"), "op"); err != nil {
			t.Fatal(err)
		}
		g.commit(g.record("k"))
		time.Sleep(5 * time.Second)
		g.commit(g.record("k"))
		time.Sleep(time.Second)
		g.stop(stop)
		if got := g.accepted(); !slices.Equal(got, []string{"other/1", "k/1", "k/2", "k/3", "k/4", "k/5"}) {
			t.Fatalf("P4: after unparking, delivered %v", got)
		}
	})
}

// A route that is down tries again with a row that has to be promoted first.
func TestLoneUnorderedMessageIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, &transporttest.Options{Script: func(_ *transport.Delivery, nth int) transporttest.Reply {
			if nth == 1 {
				return transporttest.Reply{Outcome: transport.Unknown}
			}
			return transporttest.Reply{Outcome: transport.Accepted}
		}})
		g.commit(g.record(""))
		_, stop := g.start(g.mem, nil)
		time.Sleep(time.Minute)
		g.stop(stop)
		if got := g.accepted(); len(got) != 1 || g.pending() != 0 {
			t.Fatalf("P5: delivered %v, %d pending", got, g.pending())
		}
	})
}

// Nobody waits for a poll or a renewal: not a message that is alone, and not one
// far above the last, for which tried_to has to be raised first.
func TestWokenRelaySendsAtOnce(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		t.Run(fmt.Sprintf("key %q", key), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, nil, nil)
				r, stop := g.start(g.mem, &relay.Options{TTL: time.Minute, PollMin: 10 * time.Second, PollMax: 10 * time.Second})
				time.Sleep(time.Second)
				for n := range 5 {
					for range 50 {
						tx := g.mem.Begin() // what is rolled back leaves its positions unused
						g.enlist(tx, g.record("other"))
						tx.Rollback()
					}
					g.commit(g.record(key))
					r.Wake()
					time.Sleep(20 * time.Millisecond)
					if got := len(g.accepted()); got != n+1 {
						t.Errorf("%d messages were delivered 20 ms after message %d", got, n+1)
					}
				}
				g.stop(stop)
			})
		})
	}
}
