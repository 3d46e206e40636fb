package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

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
	rec := func(key string) outbox.Record {
		return outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: time.Now(),
			Message: outbox.Message{Destination: "d", Key: []byte(key), Event: outbox.Event{Source: "s"}}}
	}
	enlist := func(key string, tx *MemTx) {
		t.Helper()
		if err := tx.Lock(ctx, key); err != nil {
			t.Fatal(err)
		}
		if err := m.Enlist(ctx, tx, rec(key)); err != nil {
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
