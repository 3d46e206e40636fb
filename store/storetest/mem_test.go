package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
)

func testRecord(key string) outbox.Record {
	r := outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: time.Now(),
		Message: outbox.Message{Destination: "d", Event: outbox.Event{Source: "s"}}}
	if key != "" {
		r.Message.Key = []byte(key)
	}
	return r
}

// The schedule that a cursor over positions loses (protocol: T1 draws 1 and
// stays open, T3 of another key draws 2 and is read, T1 commits, T2 of T1's key
// draws 3): the row at 3 names the late row at 1 before it can overtake it.
func TestMemLateCommitIsNamedByKeyPrev(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := NewMem(&MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 1, Unordered: 1}}})
	g, err := m.AcquireLanes(ctx, outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 2, TTL: time.Minute})
	if err != nil || len(g.Leases) != 2 {
		t.Fatalf("AcquireLanes: %v, %v", g, err)
	}
	enlist := func(key string, tx *MemTx) {
		t.Helper()
		if err := tx.Lock(ctx, key); err != nil {
			t.Fatal(err)
		}
		if err := m.Enlist(ctx, tx, testRecord(key)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(rd outbox.LaneRead) []outbox.LaneRow {
		t.Helper()
		dst := make([]outbox.LaneRow, 8)
		n, err := m.ReadLanes(ctx, []outbox.LaneRead{rd}, dst)
		if err != nil {
			t.Fatal(err)
		}
		return dst[:n]
	}
	t1, t3, t2 := m.Begin(), m.Begin(), m.Begin()
	enlist("K", t1)
	enlist("other", t3)
	if err := t3.Commit(); err != nil {
		t.Fatal(err)
	}
	rows := read(outbox.LaneRead{Lane: 1})
	if len(rows) != 1 || rows[0].Pos != 2 || rows[0].KeyPrev != 0 {
		t.Fatalf("first read: %+v, want position 2 alone", rows)
	}
	if err := t1.Commit(); err != nil {
		t.Fatal(err)
	}
	enlist("K", t2)
	if err := t2.Commit(); err != nil {
		t.Fatal(err)
	}
	rows = read(outbox.LaneRead{Lane: 1, After: 2})
	if len(rows) != 1 || rows[0].Pos != 3 || rows[0].KeyPrev != 1 {
		t.Fatalf("read above the cursor: %+v, want position 3 with KeyPrev 1", rows)
	}
	rows = read(outbox.LaneRead{Lane: 1, Keys: [][]byte{[]byte("K")}})
	if len(rows) != 2 || rows[0].Pos != 1 || rows[1].Pos != 3 {
		t.Fatalf("read of the key: %+v, want positions 1 and 3", rows)
	}
}

// A read may return after the world has moved on; what it returns is the one
// snapshot that it took.
func TestMemReadReturnsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		held, free := make(chan string), make(chan struct{})
		opts := &MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 1, Unordered: 1}}}
		opts.Hooks.AfterRead = func(op string) {
			if op == "ReadLanes" {
				held <- op
				<-free
			}
		}
		m := NewMem(opts)
		first, second := testRecord("k"), testRecord("k")
		tx := m.Begin()
		if err := errors.Join(m.Enlist(ctx, tx, first), tx.Commit()); err != nil {
			t.Fatal(err)
		}
		dst := make([]outbox.LaneRow, 8)
		read := make(chan int)
		go func() {
			n, err := m.ReadLanes(ctx, []outbox.LaneRead{{Lane: 1}}, dst)
			if err != nil {
				t.Error(err)
			}
			read <- n
		}()
		<-held
		tx = m.Begin()
		if err := errors.Join(m.Enlist(ctx, tx, second), tx.Commit()); err != nil {
			t.Fatal(err)
		}
		res, err := m.SettleLanes(ctx, outbox.SettleRequest{Owner: outbox.NewID(), Settlements: []outbox.Settlement{{Lane: 1, Pos: 1, ID: first.ID, Outcome: outbox.SettleAccepted}}})
		if err != nil || !slices.Equal(res, []outbox.SettleResult{outbox.Settled}) {
			t.Fatalf("SettleLanes: %v, %v", res, err)
		}
		close(free)
		if n := <-read; n != 1 || dst[0].Record.ID != first.ID {
			t.Errorf("the late read returned %d rows, %s; want the one row that was there", n, dst[0].Record.ID)
		}
	})
}

// The hooks around a commit stand on either side of it.
func TestMemCommitHooks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var m *Mem
	var seen []int64
	look := func(op string) {
		if op == "Commit" {
			n, err := m.PendingCount(ctx, time.Now())
			if err != nil {
				t.Error(err)
			}
			seen = append(seen, n)
		}
	}
	m = NewMem(&MemOptions{Hooks: MemHooks{BeforeCommit: look, AfterCommit: look}})
	tx := m.Begin()
	if err := errors.Join(m.Enlist(ctx, tx, testRecord("")), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []int64{0, 1}) {
		t.Errorf("rows before and after the commit: %v, want 0 and 1", seen)
	}
}

// A row lock serialises a key's producers: the second draws its position only
// when the first has committed.
func TestMemLockSerialisesProducers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := NewMem(&MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 1, Unordered: 1}}})
		first, second := testRecord("k"), testRecord("k")
		produce := func(rec outbox.Record, think time.Duration) {
			tx := m.Begin()
			if err := tx.Lock(ctx, "customer k"); err != nil {
				t.Error(err)
			}
			time.Sleep(think)
			if err := errors.Join(m.Enlist(ctx, tx, rec), tx.Commit()); err != nil {
				t.Error(err)
			}
		}
		go produce(first, time.Second)
		synctest.Wait()
		go produce(second, 0)
		synctest.Wait()
		if n, err := m.PendingCount(ctx, time.Now()); n != 0 || err != nil {
			t.Errorf("%d rows while the lock is held, %v", n, err)
		}
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		tx := m.Begin()
		if err := tx.Lock(short, "customer k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock past its deadline: %v", err)
		}
		time.Sleep(2 * time.Second)
		dst := make([]outbox.LaneRow, 8)
		n, err := m.ReadLanes(ctx, []outbox.LaneRead{{Lane: 1}}, dst)
		if err != nil || n != 2 || dst[0].Record.ID != first.ID || dst[1].Record.ID != second.ID {
			t.Errorf("rows %v, %v; want the first producer's first", dst[:n], err)
		}
	})
}

// Leases run on the bubble's clock: a window ends at its expiry, not after it.
func TestMemLeaseExpiryInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := NewMem(nil)
		acquire := func(owner outbox.ID) (outbox.LaneGrant, error) {
			return m.AcquireLanes(ctx, outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 100, TTL: 15 * time.Second})
		}
		a, b := outbox.NewID(), outbox.NewID()
		if g, err := acquire(a); err != nil || len(g.Leases) != 24 {
			t.Fatalf("first relay: %v, %v", g, err)
		}
		time.Sleep(15*time.Second - time.Microsecond)
		if g, err := acquire(b); err != nil || len(g.Leases) != 0 {
			t.Fatalf("second relay just before the expiry: %v, %v", g, err)
		}
		time.Sleep(time.Microsecond)
		if _, err := acquire(a); !errors.Is(err, outbox.ErrOwnerEnded) {
			t.Errorf("renewal at the expiry: %v, want ErrOwnerEnded", err)
		}
		g, err := acquire(b)
		if err != nil || len(g.Leases) != 24 || !g.Leases[0].Unclean || g.Leases[0].Epoch != 2 {
			t.Errorf("second relay at the expiry: %v, %v", g, err)
		}
	})
}

// What only Mem shows: where a row lies, who did what, what the owner has seen.
func TestMemPlacesAndAudit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := NewMem(&MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 1, Unordered: 1}}})
	rec, later := testRecord("k"), testRecord("k")
	later.Message.DeliverAt = time.Now().Add(time.Hour)
	at := func(r outbox.Record, want string) {
		t.Helper()
		if got := m.Place(r.ID); got != want {
			t.Errorf("the row lies in %q, want %q", got, want)
		}
	}
	tx := m.Begin()
	if err := m.Enlist(ctx, tx, rec, later); err != nil {
		t.Fatal(err)
	}
	at(rec, "")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	at(rec, "hot")
	at(later, "deferred")
	owner := outbox.NewID()
	acquire := func() []outbox.LaneLease {
		t.Helper()
		g, err := m.AcquireLanes(ctx, outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 2, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return g.Leases
	}
	acquire()
	if _, err := m.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("k"), By: "ann"}); err != nil {
		t.Fatal(err)
	}
	leases := acquire()
	if _, _, err := m.MoveParked(ctx, leases, 10); err != nil {
		t.Fatal(err)
	}
	at(rec, "parked")
	if m.ConfigSeen(1) != leases[0].Config || leases[0].Config == 0 {
		t.Errorf("config seen %d, want %d", m.ConfigSeen(1), leases[0].Config)
	}
	if _, err := m.UnparkKey(ctx, "default", []byte("k"), "bob"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.MoveParked(ctx, acquire(), 10); err != nil {
		t.Fatal(err)
	}
	at(rec, "hot")
	var did []string
	for _, a := range m.Audit() {
		did = append(did, a.By+" "+a.What)
	}
	if !slices.Equal(did, []string{"ann park", "bob unpark"}) {
		t.Errorf("audit %v", did)
	}
}

func TestMemRefusesInvalidRoutes(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a route with 2000 lanes: no panic")
		}
	}()
	NewMem(&MemOptions{Routes: []outbox.Route{{Name: "x", Ordered: 2000}}})
}
