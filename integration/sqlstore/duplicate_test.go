package sqlstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// beside is an id so many steps after another, or before it.
func beside(id outbox.ID, steps int) outbox.ID {
	id[15] += byte(steps)
	return id
}

// TestProducerThatMetADuplicate: a transaction whose id is pending already, or was
// until a moment ago, may stay open for long. It holds that row at most: ids
// right beside it are enlisted, promoted, moved, replayed and settled meanwhile,
// in its lane and in others, and the settlement of the row itself does not wait.
func TestProducerThatMetADuplicate(t *testing.T) {
	t.Parallel()
	for name, met := range map[string]bool{"pending": true, "delivered": false} {
		t.Run(name, func(t *testing.T) {
			onServers(t, func(t *testing.T, e engine) { producerThatMetADuplicate(t, e, met) })
		})
	}
}

func producerThatMetADuplicate(t *testing.T, e engine, met bool) {
	s, db, _ := e.migrated(t, nil)
	// No statement below may come near it: it is there for when one waits.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	owner := outbox.NewID()
	acquire := func() []outbox.LaneLease {
		t.Helper()
		g, err := s.AcquireLanes(ctx, outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 24, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return g.Leases
	}
	leases := acquire()
	settler, err := s.LaneSession(ctx, "settle")
	if err != nil {
		t.Fatal(err)
	}
	defer settler.Close()
	// read finds rows of the lane by their ids.
	read := func(ids ...outbox.ID) (found []outbox.LaneRow) {
		t.Helper()
		rows := make([]outbox.LaneRow, 64)
		n, err := s.ReadLanes(ctx, []outbox.LaneRead{{Lane: hotLane}}, rows)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			for _, r := range rows[:n] {
				if r.Record.ID == id {
					found = append(found, r)
				}
			}
		}
		if len(found) != len(ids) {
			t.Fatalf("%d of %d rows are in their lane", len(found), len(ids))
		}
		return found
	}
	want, later := outbox.Settled, false
	settle := func(outcome outbox.SettleOutcome, rows ...outbox.LaneRow) error {
		t.Helper()
		q := outbox.SettleRequest{Owner: owner}
		for _, r := range rows {
			st := outbox.Settlement{
				Lane: r.Lane, Epoch: leases[hotLane-1].Epoch, Pos: r.Pos, ID: r.Record.ID, Hint: r.Hint, Outcome: outcome, Attempts: r.Record.Attempts, Later: later,
			}
			if outcome != outbox.SettleAccepted {
				st.Reason = "no"
			}
			q.Settlements = append(q.Settlements, st)
		}
		res, err := settler.SettleLanes(ctx, q)
		for i, got := range res {
			if got != want {
				t.Errorf("settlement %d: got %d, want %d", i, got, want)
			}
		}
		return err
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s while the transaction was open: %v", what, err)
		}
	}
	at := func(id outbox.ID, key string, due bool) outbox.Record {
		r := record(key)
		r.ID = id
		if due {
			r.Message.DeliverAt = time.Now().Add(-time.Hour)
		}
		return r
	}

	x := record("hot")
	x.ID[15] = 100
	scheduled, dead, parked := at(beside(x.ID, -1), "hot", true), at(beside(x.ID, -2), "hot", false), at(beside(x.ID, -3), "hot", false)
	enlist(t, s, db, scheduled, dead, parked, at(beside(x.ID, -20), "hot", false))
	// A snapshot of before, of the producer's and of somebody else's: it keeps the
	// engine from purging what is deleted.
	other, err := stores.Begin(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	tx, err := stores.Begin(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, tx := range []stores.Tx{other, tx} {
		var n int64
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM postrider_outbox`).Scan(&n); err != nil || n != 3 {
			t.Fatalf("hot rows: got %d, %v, want 3", n, err)
		}
	}
	scheduledAgain := at(beside(x.ID, 30), "hot", false)
	enlist(t, s, db, x, scheduledAgain)
	must("bury", settle(outbox.SettleDead, read(dead.ID)...))
	if ok, err := s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("hot")}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	gone := read(x.ID, scheduledAgain.ID)
	row := gone[0]
	must("settle", settle(outbox.SettleAccepted, gone[1]))
	if !met {
		must("settle", settle(outbox.SettleAccepted, row))
	}
	err = tx.Enlist(ctx, s, x)
	if met && !errors.Is(err, outbox.ErrDuplicateID) || !met && err != nil {
		t.Fatalf("enlist the id again: got %v", err)
	}

	scheduledAgain.Message.DeliverAt = time.Now().Add(time.Hour)
	must("enlist", tx.Enlist(ctx, s, scheduledAgain))
	// What was settled is settled again: the relay has not heard the answer.
	want = outbox.Gone
	if met {
		gone = gone[1:]
	}
	must("repeat outcomes", settle(outbox.SettleAccepted, gone...))
	must("repeat outcomes", settle(outbox.SettleFailed, gone...))
	later = true
	must("repeat outcomes", settle(outbox.SettleAccepted, gone...))
	want, later = outbox.Settled, false

	for _, steps := range []int{-30, -4, 1, 2, 90} {
		must("enlist", tryEnlist(ctx, s, db, at(beside(x.ID, steps), "hot", false), at(beside(x.ID, steps+50), "other", false), at(beside(x.ID, steps+70), "", true)))
	}
	n, _, err := s.PromoteLanes(ctx, leases, make([]outbox.LaneRow, 64))
	must("promote", err)
	if n != 6 {
		t.Errorf("promoted %d rows, want 6", n)
	}
	res, err := s.ReplayDead(ctx, "test", dead.ID)
	must("replay", err)
	if res.Replayed != 1 {
		t.Errorf("replayed %d rows, want 1", res.Replayed)
	}
	must("settle the row beside it", settle(outbox.SettleAccepted, read(beside(x.ID, 1), beside(x.ID, -4))...))
	must("fail the row beside it", settle(outbox.SettleFailed, read(beside(x.ID, 2))...))
	if met {
		err := settle(outbox.SettleAccepted, row)
		if e.dialect == sqlstore.MySQL && !errors.Is(err, outbox.ErrRefused) || e.dialect != sqlstore.MySQL && err != nil {
			t.Errorf("settle the row that the transaction has met: got %v", err)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if met && e.dialect == sqlstore.MySQL {
		must("settle", settle(outbox.SettleAccepted, row))
	}

	// Aside and back among what was deleted a moment ago, beside the last insert of
	// a transaction that is open.
	if tx, err = stores.Begin(ctx, db); err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	must("enlist", tx.Enlist(ctx, s, at(beside(x.ID, -31), "hot", false), at(beside(x.ID, 41), "hot", false)))
	move := func(want int) {
		t.Helper()
		leases = acquire()
		n, _, err := s.MoveParked(ctx, leases, 100)
		must("move", err)
		if n != want {
			t.Errorf("moved %d rows, want %d", n, want)
		}
	}
	move(7)
	if ok, err := s.UnparkKey(ctx, "default", []byte("hot"), "test"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	move(7)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}
