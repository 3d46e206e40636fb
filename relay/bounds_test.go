package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/storetest"
	"github.com/postrider/postrider/transport"
)

// answer is a transport that gives every message the same outcome, after a
// while.
type answer struct {
	outcome func(*transport.Delivery) transport.Outcome
	after   time.Duration
	sends   atomic.Int64
}

func (a *answer) Send(ctx context.Context, ds []*transport.Delivery) {
	a.sends.Add(1)
	if a.after > 0 {
		t := time.NewTimer(a.after)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
	for _, d := range ds {
		if d.Begin() == nil {
			d.Report(a.outcome(d), nil)
		}
	}
}

func always(o transport.Outcome) func(*transport.Delivery) transport.Outcome {
	return func(*transport.Delivery) transport.Outcome { return o }
}

func fill(t *testing.T, mem *storetest.Mem, rows, keys int) {
	t.Helper()
	fillFrom(t, mem, 0, rows, keys)
}

// fillFrom commits the rows from number first on.
func fillFrom(t *testing.T, mem *storetest.Mem, first, rows, keys int) {
	t.Helper()
	for at := first; at < rows; at += 1000 {
		tx := mem.Begin()
		var recs []outbox.Record
		for i := at; i < min(at+1000, rows); i++ {
			r := outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: time.Now(),
				Message: outbox.Message{Destination: "d", Body: make([]byte, 100), Event: outbox.Event{Source: "/t"}}}
			if keys > 0 {
				r.Message.Key = fmt.Append(nil, "k", i%keys)
			}
			recs = append(recs, r)
		}
		if err := mem.Enlist(context.Background(), tx, recs...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// engineOver runs an engine until the test ends or stop is called.
func engineOver(t *testing.T, ls outbox.LaneStore, tr transport.Transport, opts *Options) (e *engine, stop func()) {
	t.Helper()
	o := opts.withDefaults()
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	e = newEngine(o, ls, map[string]transport.Transport{"default": tr})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.run(ctx) }()
	return e, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (e *engine) memory() (rows, bytes, remembered, keys int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, rt := range e.core.routes {
		rows, bytes = rows+rt.rows, bytes+rt.bytes
	}
	for _, l := range e.core.list {
		remembered += len(l.rows)
		keys += len(l.keys)
	}
	return rows, bytes, remembered, keys
}

// A blocked key costs its state, not its rows.
func TestBlockedKeysHoldNoRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys, each = 600, 10
		mem := storetest.NewMem(nil)
		fill(t, mem, keys*each, keys)
		e, stop := engineOver(t, mem, &answer{outcome: always(transport.Refused)},
			&Options{MaxAttempts: -1, BackoffMin: 12 * time.Hour, BackoffMax: 24 * time.Hour})
		time.Sleep(10 * time.Second)
		rows, bytes, remembered, blocked := e.memory()
		stop()
		if blocked < keys*9/10 {
			t.Fatalf("%d of %d keys are blocked: the test does not show what it should", blocked, keys)
		}
		if rows > keys/10 || remembered > keys/10 {
			t.Errorf("%d rows (%d bytes) and %d remembered ones are in memory beside %d blocked keys", rows, bytes, remembered, blocked)
		}
	})
}

// A broker that takes its time does not grow the relay.
func TestSlowBrokerDoesNotGrowMemory(t *testing.T) {
	t.Parallel()
	for _, keys := range []int{0, 1, 500} {
		t.Run(fmt.Sprint("keys", keys), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := storetest.NewMem(nil)
				fill(t, mem, 4000, keys)
				opts := &Options{BufferRows: 500, Batch: 50, Grace: -1}
				e, stop := engineOver(t, mem, &answer{outcome: always(transport.Accepted), after: time.Second}, opts)
				most, mostBytes := 0, 0
				for range 50 {
					time.Sleep(100 * time.Millisecond)
					rows, bytes, _, _ := e.memory()
					most, mostBytes = max(most, rows), max(mostBytes, bytes)
				}
				stop()
				// A read may still fit the buffer when it begins and add its rows.
				if limit := opts.BufferRows + readRows; most > limit || mostBytes > limit*(100+rowOverhead+100) {
					t.Errorf("%d rows, %d bytes in memory with BufferRows %d", most, mostBytes, opts.BufferRows)
				}
			})
		})
	}
}

// counting counts the store calls of a relay's steady loop.
type counting struct {
	*storetest.Mem
	reads, settles atomic.Int64
}

func (c *counting) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
	c.reads.Add(1)
	return c.Mem.ReadLanes(ctx, reads, dst)
}

func (c *counting) SettleLanes(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
	c.settles.Add(1)
	return c.Mem.SettleLanes(ctx, r)
}

// The steady loop costs at most one read and one settle per batch.
func TestOneReadAndOneSettlePerBatch(t *testing.T) {
	t.Parallel()
	for _, keys := range []int{0, 1000} {
		t.Run(fmt.Sprint("keys", keys), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := &counting{Mem: storetest.NewMem(nil)}
				const rows = 10000
				fill(t, mem.Mem, rows, keys)
				tr := &answer{outcome: always(transport.Accepted), after: 5 * time.Millisecond}
				_, stop := engineOver(t, mem, tr, &Options{Batch: 100, BufferRows: 4096})
				for {
					time.Sleep(time.Second)
					if n, _ := mem.PendingCount(t.Context(), time.Now()); n == 0 {
						break
					}
				}
				reads, settles, sends := mem.reads.Load(), mem.settles.Load(), tr.sends.Load()
				stop()
				t.Logf("%d rows: %d sends, %d reads, %d settles", rows, sends, reads, settles)
				// Start, taking of lanes and the idle polls of the end aside.
				if sends < rows/100 || reads > sends+15 || settles > sends+15 {
					t.Errorf("%d sends took %d reads and %d settles", sends, reads, settles)
				}
			})
		})
	}
}

// Trust ends by whichever clock says so first.
func TestWindowTrustsNeitherClockAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(func() {})
		defer w.end()
		now := time.Now()
		if w.live() {
			t.Fatal("a window without a renewal is live")
		}
		if !w.extend(now.Add(time.Second)) || !w.live() {
			t.Fatal("a renewed window is not live")
		}
		at := now.UnixNano()
		for _, c := range []struct {
			name  string
			since time.Duration
			wall  int64
			live  bool
		}{
			{"both within", time.Second - 1, at + int64(time.Second) - 1, true},
			{"monotonic clock over", time.Second, at, false},
			{"suspended: the monotonic clock stood still", time.Millisecond, at + int64(time.Hour), false},
			{"wall clock set back", time.Second, at - int64(time.Hour), false},
		} {
			if got := w.trusted(c.since, c.wall); got != c.live {
				t.Errorf("%s: trusted %v, want %v", c.name, got, c.live)
			}
		}
		time.Sleep(time.Second)
		if w.live() || w.extend(time.Now().Add(time.Hour)) || w.live() {
			t.Error("a window that was over was opened again")
		}
	})
}

// A wall clock that is set forward ends the window for good: set back, it does
// not open it again.
func TestWindowEndsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		w := newWindow(func() { told++ })
		defer w.end()
		if !w.extend(time.Now().Add(time.Minute)) {
			t.Fatal("a renewed window is not live")
		}
		until := w.wall.Load()
		w.wall.Store(until - int64(time.Hour)) // as if the clock were an hour ahead
		if w.live() {
			t.Fatal("trusted beyond its end by the wall clock")
		}
		w.wall.Store(until)
		if w.live() || w.extend(time.Now().Add(time.Minute)) || w.ctx.Err() == nil || told != 1 {
			t.Errorf("P2: the window is live again (%v), its sends go on (%v), its end was told %d times", w.live(), w.ctx.Err() == nil, told)
		}
	})
}

func TestBackoffSaturates(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1 << 40, -1, 0, 1, 10, 40, 62, 63, 64, 1 << 20} {
		for range 100 {
			if d := backoff(time.Millisecond, time.Minute, n); d <= 0 || d > time.Minute {
				t.Fatalf("backoff after %d failures is %v", n, d)
			}
		}
	}
	long := 0
	for range 1000 {
		if backoff(time.Millisecond, time.Minute, 1<<20) > 30*time.Second {
			long++
		}
	}
	if long < 400 || long > 600 {
		t.Errorf("%d of 1000 waits are above half of the cap: that is no full jitter", long)
	}
}

// slowList is a store with so many parked keys that to list them takes longer
// than a lease lasts.
type slowList struct {
	*storetest.Mem
	lists atomic.Int64
}

func (s *slowList) ParkedKeys(ctx context.Context, lanes []outbox.Lane) ([]outbox.ParkedKey, error) {
	if s.lists.Add(1) > 1 {
		time.Sleep(5 * time.Second)
	}
	return s.Mem.ParkedKeys(ctx, lanes)
}

// P2: keys that park one after the other do not keep the relay from renewing.
func TestParkingDoesNotHoldUpRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowList{Mem: storetest.NewMem(nil)}
		lost := 0
		tr := &answer{outcome: always(transport.Unroutable)}
		_, stop := engineOver(t, store, tr, &Options{TTL: 3 * time.Second, Hooks: Hooks{
			LeaseLost: func(outbox.LaneLease, string) { lost++ },
		}})
		for i := range 60 {
			fillFrom(t, store.Mem, i, i+1, 60)
			time.Sleep(500 * time.Millisecond)
		}
		parked, err := store.Mem.ParkedKeys(t.Context(), nil)
		if err != nil || len(parked) != 60 {
			t.Errorf("P5: %d keys parked, want 60 (%v)", len(parked), err)
		}
		if lost > 0 || store.lists.Load() < 2 {
			t.Errorf("P2: %d leases lost while keys were listed %d times", lost, store.lists.Load())
		}
		stop()
	})
}

// weighing weighs what each read returns.
type weighing struct {
	*storetest.Mem
	most atomic.Int64
}

func (w *weighing) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
	n, err := w.Mem.ReadLanes(ctx, reads, dst)
	bytes := int64(0)
	for i := range dst[:n] {
		bytes += int64(len(dst[i].Record.Message.Body))
	}
	w.most.Store(max(w.most.Load(), bytes))
	return n, err
}

// A backlog of large bodies does not come at once, whatever the number of lanes
// and keys: not at the start, not through sweeps, not when keys try again.
func TestLargeBodiesAreReadWithinTheBuffer(t *testing.T) {
	t.Parallel()
	for _, keys := range []int{0, 100} {
		t.Run(fmt.Sprint("keys", keys), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const body, rows, buffer = 100 << 10, 300, 512 << 10
				store := &weighing{Mem: storetest.NewMem(nil)}
				for i := range rows {
					tx := store.Begin()
					r := outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: time.Now(),
						Message: outbox.Message{Destination: "d", Body: make([]byte, body), Event: outbox.Event{Source: "/t"}}}
					if keys > 0 {
						r.Message.Key = fmt.Append(nil, "k", i%keys)
					}
					if err := store.Enlist(t.Context(), tx, r); err != nil {
						t.Fatal(err)
					}
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
				}
				tries := map[outbox.ID]bool{}
				var mu sync.Mutex
				tr := &answer{after: 10 * time.Millisecond, outcome: func(d *transport.Delivery) transport.Outcome {
					mu.Lock()
					defer mu.Unlock()
					if !tries[d.Record.ID] {
						tries[d.Record.ID] = true
						return transport.Refused // so that keys are read again
					}
					return transport.Accepted
				}}
				e, stop := engineOver(t, store, tr, &Options{BufferBytes: buffer, BackoffMax: time.Second})
				held := 0
				for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					_, bytes, _, _ := e.memory()
					held = max(held, bytes)
					if n, _ := store.PendingCount(t.Context(), time.Now().Add(time.Hour)); n == 0 {
						break
					}
				}
				stop()
				if n, _ := store.PendingCount(t.Context(), time.Now().Add(time.Hour)); n > 0 {
					t.Errorf("%d rows left", n)
				}
				if most := store.most.Load(); most > buffer+body || held > 2*buffer {
					t.Errorf("a read returned %d KiB and %d KiB were held with a buffer of %d KiB and bodies of %d KiB", most>>10, held>>10, buffer>>10, body>>10)
				}
			})
		})
	}
}

// What committed late is read within the buffer, too.
func TestLateLargeBodiesAreReadWithinTheBuffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const body, rows, buffer = 100 << 10, 80, 512 << 10
		store := &weighing{Mem: storetest.NewMem(nil)}
		enlist := func(tx *storetest.MemTx, size int) {
			t.Helper()
			r := outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: time.Now(),
				Message: outbox.Message{Destination: "d", Body: make([]byte, size), Event: outbox.Event{Source: "/t"}}}
			if err := store.Enlist(t.Context(), tx, r); err != nil {
				t.Fatal(err)
			}
		}
		late := store.Begin()
		for range rows {
			enlist(late, body)
		}
		_, stop := engineOver(t, store, &answer{after: 10 * time.Millisecond, outcome: always(transport.Accepted)}, &Options{BufferBytes: buffer})
		early := store.Begin()
		for range 100 { // the cursor of each lane passes the open transaction
			enlist(early, body)
		}
		if err := early.Commit(); err != nil {
			t.Fatal(err)
		}
		for n := int64(1); n > 0; time.Sleep(100 * time.Millisecond) {
			n, _ = store.PendingCount(t.Context(), time.Now().Add(time.Hour))
		}
		store.most.Store(0)
		if err := late.Commit(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stop()
		if n, _ := store.PendingCount(t.Context(), time.Now().Add(time.Hour)); n > 0 {
			t.Errorf("%d rows left", n)
		}
		if most := store.most.Load(); most > buffer+body {
			t.Errorf("a read of what committed late returned %d KiB with a buffer of %d KiB and bodies of %d KiB", most>>10, buffer>>10, body>>10)
		}
	})
}

// slowSweeps is a store whose sweeps take long, as beside busy producers.
type slowSweeps struct{ *storetest.Mem }

func (s slowSweeps) SweepLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneSpot) (int, error) {
	time.Sleep(4 * time.Millisecond)
	return s.Mem.SweepLanes(ctx, reads, dst)
}

// A transaction that commits a little later than one behind it is delivered a
// little later, even where sweeps take long.
func TestLateCommitIsFoundSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := slowSweeps{storetest.NewMem(nil)}
		e, stop := engineOver(t, store, &answer{outcome: always(transport.Accepted)}, nil)
		time.Sleep(time.Second)
		var worst time.Duration
		for i := range 20 {
			late := store.Begin()
			r := outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: time.Now(),
				Message: outbox.Message{Destination: "d", Event: outbox.Event{Source: "/t"}}}
			if err := store.Enlist(t.Context(), late, r); err != nil {
				t.Fatal(err)
			}
			fill(t, store.Mem, 100, 0) // the cursor of each lane passes the open transaction
			e.wake()
			time.Sleep(10 * time.Millisecond)
			if err := late.Commit(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for n := int64(1); n > 0; time.Sleep(time.Millisecond) {
				n, _ = store.PendingCount(t.Context(), time.Now())
			}
			worst = max(worst, time.Since(began))
			time.Sleep(time.Duration(100+7*i) * time.Millisecond)
		}
		stop()
		// The sweep under way, the pause, a sweep, and the settle.
		if limit := 4*time.Millisecond*(2+hasteFactor) + 2*linger + 2*time.Millisecond; worst > limit {
			t.Errorf("a message was out and settled %v after a late commit, want %v", worst, limit)
		}
	})
}

// refusing is a database that refuses every settle, or the marks alone.
type refusing struct {
	*storetest.Mem
	marks bool
}

func (r *refusing) SettleLanes(ctx context.Context, req outbox.SettleRequest) ([]outbox.SettleResult, error) {
	if !r.marks || len(req.TriedTo) > 0 {
		return nil, fmt.Errorf("%w: permission denied", outbox.ErrRefused)
	}
	return r.Mem.SettleLanes(ctx, req)
}

// P7: what refuses every settle is no matter of a row: it is told once, as the
// outage that it is, not once a message.
func TestEverySettleRefusedIsAnOutage(t *testing.T) {
	t.Parallel()
	for _, marks := range []bool{false, true} {
		t.Run(fmt.Sprint("marks alone ", marks), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &refusing{storetest.NewMem(nil), marks}
				fill(t, store.Mem, 500, 100)
				var states []error
				troubles := 0
				e := newEngine((&Options{Hooks: Hooks{
					Store:   func(err error) { states = append(states, err) },
					Trouble: func(error) { troubles++ },
				}}).withDefaults(), store, map[string]transport.Transport{"default": &answer{outcome: always(transport.Accepted)}})
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- e.run(ctx) }()
				time.Sleep(10 * time.Minute)
				cancel()
				<-done
				if len(states) == 0 || states[0] == nil || troubles > 20 {
					t.Errorf("P7: %d changes of state (%v), %d reports", len(states), states, troubles)
				}
				if len(states) > 3 {
					t.Errorf("P7: the store was lost and found %d times", len(states))
				}
			})
		})
	}
}

// slowLine takes a while for every byte of a body.
type slowLine struct{ *storetest.Mem }

const slowRate = 100 << 10 // bytes a second

func (s slowLine) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
	n, err := s.Mem.ReadLanes(ctx, reads, dst)
	bytes := 0
	for i := range dst[:n] {
		bytes += len(dst[i].Record.Message.Body)
	}
	select {
	case <-time.After(time.Duration(bytes) * time.Second / slowRate):
		return n, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// After small messages a read asks for many rows. If those are large, and the
// line is slow, it gets no answer in time; the same read again would not either.
func TestReadTooLargeForTheLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := slowLine{storetest.NewMem(nil)}
		_, stop := engineOver(t, store, &answer{outcome: always(transport.Accepted)}, nil)
		pending := func(within time.Duration) (n int64) {
			for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(time.Second) {
				if n, _ = store.PendingCount(t.Context(), time.Now().Add(time.Hour)); n == 0 {
					break
				}
			}
			return n
		}
		fill(t, store.Mem, 500, 0)
		if n := pending(time.Minute); n > 0 {
			t.Fatalf("%d small rows left", n)
		}
		tx := store.Begin()
		recs := make([]outbox.Record, 8*40)
		for i := range recs {
			recs[i] = outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: time.Now(),
				Message: outbox.Message{Destination: "d", Body: make([]byte, 20<<10), Event: outbox.Event{Source: "/t"}}}
		}
		if err := store.Enlist(t.Context(), tx, recs...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if n := pending(10 * time.Minute); n > 0 {
			t.Errorf("%d large rows of %d left after ten minutes of a line that carries them in one", n, len(recs))
		}
		stop()
	})
}
