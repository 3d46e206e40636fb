package relay_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/storetest"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/transporttest"
)

var (
	soakSeeds = flag.Int("soak.seeds", 10, "seeds of TestSoak")
	soakFirst = flag.Uint64("soak.first", 1, "first seed of TestSoak")
)

var errCut = errors.New("connection cut")

// flaky is a store whose connection breaks: before a call, so that nothing
// happens, or after it, so that the caller does not learn what did. Once dead
// it never answers again, as for a killed process.
type flaky struct {
	*storetest.Mem
	rng    func() float64
	faults *atomic.Int64 // per mille of the calls
	dead   atomic.Bool
}

func (f *flaky) call(do func() error) error {
	if f.dead.Load() || f.roll() {
		return errCut
	}
	err := do()
	if f.dead.Load() || f.roll() {
		return errCut
	}
	return err
}

func (f *flaky) roll() bool { return f.rng()*1000 < float64(f.faults.Load()) }

func (f *flaky) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (g outbox.LaneGrant, err error) {
	err = f.call(func() (err error) { g, err = f.Mem.AcquireLanes(ctx, r); return err })
	return g, err
}

func (f *flaky) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (n int, err error) {
	err = f.call(func() (err error) { n, err = f.Mem.ReadLanes(ctx, reads, dst); return err })
	return n, err
}

func (f *flaky) SweepLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneSpot) (n int, err error) {
	err = f.call(func() (err error) { n, err = f.Mem.SweepLanes(ctx, reads, dst); return err })
	return n, err
}

func (f *flaky) SettleLanes(ctx context.Context, r outbox.SettleRequest) (res []outbox.SettleResult, err error) {
	err = f.call(func() (err error) { res, err = f.Mem.SettleLanes(ctx, r); return err })
	return res, err
}

func (f *flaky) PromoteLanes(ctx context.Context, ls []outbox.LaneLease, dst []outbox.LaneRow) (n int, due time.Time, err error) {
	err = f.call(func() (err error) { n, due, err = f.Mem.PromoteLanes(ctx, ls, dst); return err })
	return n, due, err
}

func (f *flaky) MoveParked(ctx context.Context, ls []outbox.LaneLease, limit int) (n int, done []outbox.ParkedKey, err error) {
	err = f.call(func() (err error) { n, done, err = f.Mem.MoveParked(ctx, ls, limit); return err })
	return n, done, err
}

func (f *flaky) ParkedKeys(ctx context.Context, lanes []outbox.Lane) (ks []outbox.ParkedKey, err error) {
	err = f.call(func() (err error) { ks, err = f.Mem.ParkedKeys(ctx, lanes); return err })
	return ks, err
}

// TestSoak runs producers with open transactions, relays that are killed and
// cut off, a broker that refuses, loses answers and goes away, and operators
// who park keys; when the faults end, everything committed is out, nothing
// rolled back is, first deliveries of a key are in order, and nothing is left.
func TestSoak(t *testing.T) {
	t.Parallel()
	for i := range uint64(*soakSeeds) {
		seed := *soakFirst + i
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { soak(t, seed) })
		})
	}
}

func soak(t *testing.T, seed uint64) {
	var rngMu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 1))
	float := func() float64 {
		rngMu.Lock()
		defer rngMu.Unlock()
		return rng.Float64()
	}
	intn := func(n int) int { return int(float() * float64(n)) }
	ms := func(n int) time.Duration { return time.Duration(float() * float64(n) * float64(time.Millisecond)) }

	var faults atomic.Int64
	faults.Store(int64(intn(3)) * 5)
	var calm atomic.Bool
	late := float() < 0.7
	opts := &storetest.MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 1 + intn(4), Unordered: 1 + intn(2)}}}
	opts.Hooks.AfterRead = func(string) {
		if late && !calm.Load() && float() < 0.2 {
			time.Sleep(ms(300)) // the snapshot comes back late
		}
	}
	opts.Hooks.AfterCommit = func(string) {
		if late && !calm.Load() && float() < 0.05 {
			time.Sleep(ms(200))
		}
	}
	var outage atomic.Bool
	g := newRig(t, opts, &transporttest.Options{Pipelined: float() < 0.3, Script: func(d *transport.Delivery, nth int) transporttest.Reply {
		r := transporttest.Reply{Outcome: transport.Accepted, After: ms(6)}
		if calm.Load() {
			return r
		}
		switch x := float(); {
		case outage.Load():
			r.Outcome = transport.Unreachable
		case x < 0.03:
			r.Outcome = transport.Refused
		case x < 0.04:
			r.Outcome = transport.Unknown
		case x < 0.05:
			r.Outcome = transport.Unreachable
		case x < 0.055:
			r.Outcome = transport.Unroutable
		}
		return r
	}})

	// Producers: the number of a key's message is drawn under the key's lock.
	keys := 1 + intn(12)
	numbers := make([]int, keys)
	var mu sync.Mutex
	committed, rolledBack := map[outbox.ID]bool{}, map[outbox.ID]bool{}
	var producers sync.WaitGroup
	for range 4 {
		producers.Go(func() {
			for range 60 {
				k := intn(keys)
				name := fmt.Sprint("k", k)
				tx := g.mem.Begin()
				if err := tx.Lock(context.Background(), name); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				n := numbers[k]
				mu.Unlock()
				var recs []outbox.Record
				for i := range 1 + intn(3) {
					r := outbox.Record{
						ID: outbox.NewID(), Transport: "default", Type: "test.made.v1", CreatedAt: time.Now(),
						Message: outbox.Message{Destination: "test", Key: []byte(name), Body: fmt.Appendf(nil, "%s/%d", name, n+1+i), Event: outbox.Event{Source: "/test"}},
					}
					recs = append(recs, r)
				}
				n += len(recs)
				if float() < 0.4 {
					r := outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "test.made.v1", CreatedAt: time.Now(),
						Message: outbox.Message{Destination: "test", Body: []byte("free"), Event: outbox.Event{Source: "/test"}}}
					if float() < 0.3 {
						r.Message.DeliverAt = time.Now().Add(ms(5000))
					}
					recs = append(recs, r)
				}
				g.enlist(tx, recs...)
				switch x := float(); {
				case x < 0.3:
					time.Sleep(ms(30))
				case x < 0.35:
					time.Sleep(500 * time.Millisecond)
				}
				into := committed
				if float() < 0.1 {
					into = rolledBack
					if err := tx.Rollback(); err != nil {
						t.Error(err)
					}
				} else {
					mu.Lock()
					numbers[k] = n // still under the key's lock
					mu.Unlock()
					if err := tx.Commit(); err != nil {
						t.Error(err)
					}
				}
				mu.Lock()
				for _, r := range recs {
					into[r.ID] = true
				}
				mu.Unlock()
				time.Sleep(ms(20))
			}
		})
	}

	var events []string // what happened, shown when the run fails
	started := time.Now()
	note := func(format string, args ...any) {
		mu.Lock()
		events = append(events, fmt.Sprintf("%8.1fms ", float64(time.Since(started).Microseconds())/1000)+fmt.Sprintf(format, args...))
		mu.Unlock()
	}
	// Relays: killed (the store and the broker never hear of them again) or
	// stopped, and started anew.
	type running struct {
		f    *flaky
		stop func() error
	}
	count := 0
	begin := func() *running {
		count++
		id := count
		note("relay %d starts", id)
		f := &flaky{Mem: g.mem, rng: float, faults: &faults}
		_, stop := g.start(f, &relay.Options{TTL: 2 * time.Second, MaxAttempts: -1, Grace: time.Second, Batch: 1 + intn(20),
			BackoffMin: 10 * time.Millisecond, BackoffMax: 3 * time.Second, BufferRows: 64 + intn(200),
			Hooks: relay.Hooks{
				Attempt: func(a relay.Attempt) {
					note("relay %d lane %d pos %d %s: %s", id, a.Lane, a.Pos, a.Record.Message.Body, a.Outcome)
				},
				LeaseLost: func(ls outbox.LaneLease, reason string) { note("relay %d lost lane %d: %s", id, ls.Lane, reason) },
				Store:     func(err error) { note("relay %d store: %v", id, err) },
			}})
		return &running{f, stop}
	}
	relays := []*running{begin()}
	for range intn(3) {
		relays = append(relays, begin())
	}
	end := make(chan struct{})
	go func() { producers.Wait(); close(end) }()
	var killed sync.WaitGroup
	for producing := true; producing; {
		time.Sleep(ms(3000))
		i := intn(len(relays))
		switch x := float(); {
		case x < 0.3: // kill
			r := relays[i]
			note("relay killed")
			r.f.dead.Store(true)
			killed.Go(func() { _ = r.stop() })
			relays[i] = begin()
		case x < 0.5: // clean stop
			note("relay stopped")
			_ = relays[i].stop()
			relays[i] = begin()
		case x < 0.7:
			outage.Store(true)
			time.Sleep(ms(3000))
			outage.Store(false)
		case x < 0.8:
			faults.Store(int64(intn(100)))
			time.Sleep(ms(1000))
			faults.Store(0)
		case x < 0.9:
			key := []byte(fmt.Sprint("k", intn(keys)))
			if _, err := g.mem.ParkKey(context.Background(), outbox.ParkedKey{Route: "default", Key: key, By: "op", Why: "soak"}); err != nil {
				t.Error(err)
			}
			note("%s parked", key)
			time.Sleep(ms(4000))
			note("%s unparking", key)
			if _, err := g.mem.UnparkKey(context.Background(), "default", key, "op"); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-end:
			producing = false
		default:
		}
	}
	calm.Store(true)
	faults.Store(0)
	// An operator lets go what an unroutable message stopped.
	operate := func() int {
		ks, err := g.mem.ParkedKeys(context.Background(), nil)
		if err != nil {
			t.Error(err)
		}
		for _, k := range ks {
			if _, err := g.mem.UnparkKey(context.Background(), k.Route, k.Key, "op"); err != nil {
				t.Error(err)
			}
		}
		dead := make([]outbox.DeadLetter, 1000)
		n, err := g.mem.ListDead(context.Background(), outbox.DeadQuery{}, dead)
		if err != nil {
			t.Error(err)
		}
		for _, d := range dead[:n] {
			if d.Record.Message.Key != nil {
				t.Errorf("message %s of key %s is dead", d.Record.Message.Body, d.Record.Message.Key)
			}
			if _, err := g.mem.ReplayDead(context.Background(), "op", d.Record.ID); err != nil {
				t.Error(err)
			}
		}
		return len(ks) + n
	}
	for i := 0; i < 240 && g.pending()+int64(operate()) > 0; i++ {
		time.Sleep(time.Second)
	}
	for _, r := range relays {
		if err := r.stop(); err != nil {
			t.Errorf("P8: %v", err)
		}
	}
	killed.Wait()
	if n := g.pending(); n != 0 {
		t.Errorf("%d rows left four minutes after the last fault", n)
	}
	if n := g.dead(); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	out := map[outbox.ID]int{}
	for _, s := range g.rec.Accepted() {
		out[s.Record.ID]++
	}
	for id := range committed {
		if out[id] == 0 {
			t.Errorf("lost: %s was committed and never accepted", id)
		}
	}
	for id := range rolledBack {
		if out[id] > 0 {
			t.Errorf("phantom: %s was rolled back and sent", id)
		}
	}
	defer func() {
		if t.Failed() {
			for _, e := range events {
				t.Log(e)
			}
			t.Logf("replay with -run 'TestSoak/seed%d$' -soak.first=%d -soak.seeds=1", seed, seed)
		}
	}()
	g.inOrder()
}
