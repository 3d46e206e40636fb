package sqlstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

// TestLocksOfOthers locks all rows of another relay's lanes, as that one's own
// transactions do, and has a relay and an operator work in the other lanes. None of
// it waits: a lane that is busy must not hold up the rest.
func TestLocksOfOthers(t *testing.T) {
	onServers(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		step := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s beside a lane whose rows are locked: %v", what, err)
			}
		}
		acquire := func(r outbox.LaneRequest) []outbox.LaneLease {
			t.Helper()
			r.Routes, r.TTL = []string{"default"}, 10*time.Minute
			g, err := s.AcquireLanes(ctx, r)
			step("acquire lanes", err)
			return g.Leases
		}
		settle := func(l outbox.LaneLease, row outbox.LaneRow, outcome outbox.SettleOutcome, attempts int) {
			t.Helper()
			res, err := s.SettleLanes(ctx, outbox.SettleRequest{
				Owner: l.Owner,
				Settlements: []outbox.Settlement{{
					Lane: row.Lane, Epoch: l.Epoch, Pos: row.Pos, ID: row.Record.ID, Outcome: outcome, Attempts: attempts, Attempt: true, Reason: "no",
				}},
				TriedTo: []outbox.LaneMark{{Lane: row.Lane, Epoch: l.Epoch, Pos: row.Pos}},
			})
			step("settle", err)
			if res[0] != outbox.Settled {
				t.Fatalf("settle: result %v", res[0])
			}
		}

		// The other relay has the lanes above 12, with a key that is parked there and
		// a dead letter.
		const far = "n"
		farLane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte(far))
		enlist(t, s, db, record("hot"), record("hot"), record(far), record(far))
		other := acquire(outbox.LaneRequest{Owner: outbox.NewID(), Want: 24})
		rows := make([]outbox.LaneRow, 8)
		n, err := s.ReadLanes(ctx, []outbox.LaneRead{{Lane: farLane}}, rows)
		if err != nil || n != 2 {
			t.Fatalf("read: %d rows, %v", n, err)
		}
		settle(other[farLane-1], rows[0], outbox.SettleDead, 0)
		if ok, err := s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte(far)}); err != nil || !ok {
			t.Fatal(ok, err)
		}
		exec(t, db, `UPDATE postrider_lanes SET owner = NULL WHERE lane <= 12`)
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		for _, text := range []string{
			`SELECT lane FROM postrider_lanes WHERE lane > 12 FOR UPDATE`,
			`SELECT lane FROM postrider_lane_marks WHERE lane > 12 FOR UPDATE`,
			`SELECT ended FROM postrider_relays FOR UPDATE`,
			`SELECT lane FROM postrider_parked_keys FOR UPDATE`,
			`SELECT lane FROM postrider_dead FOR UPDATE`,
			`SELECT lane FROM postrider_outbox WHERE lane > 12 FOR UPDATE`,
		} {
			rows, err := tx.QueryContext(ctx, text)
			if err != nil {
				t.Fatal(err)
			}
			if !rows.Next() {
				t.Fatalf("%s: no row is locked", text)
			}
			rows.Close()
		}

		held := acquire(outbox.LaneRequest{Owner: outbox.NewID(), Want: 24})
		if len(held) != 12 || held[hotLane-1].Lane != hotLane {
			t.Fatalf("%d lanes acquired, want the first 12", len(held))
		}
		hot := held[hotLane-1]
		n, err = s.ReadLanes(ctx, []outbox.LaneRead{{Lane: hotLane}}, rows)
		step("read", err)
		if n != 2 {
			t.Fatalf("read: %d rows, want 2", n)
		}
		settle(hot, rows[0], outbox.SettleFailed, 0)
		settle(hot, rows[0], outbox.SettleDead, 1)
		dead := rows[0].Record.ID
		_, err = s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("hot")})
		step("park", err)
		held = acquire(outbox.LaneRequest{Owner: hot.Owner})
		_, _, err = s.MoveParked(ctx, held, 8)
		step("move aside", err)
		_, err = s.UnparkKey(ctx, "default", []byte("hot"), "test")
		step("unpark", err)
		held = acquire(outbox.LaneRequest{Owner: hot.Owner})
		_, _, err = s.MoveParked(ctx, held, 8)
		step("move back", err)
		_, _, err = s.PromoteLanes(ctx, held, rows)
		step("promote", err)
		_, err = s.ReplayDead(ctx, "test", dead)
		step("replay", err)
		if held = acquire(outbox.LaneRequest{Owner: hot.Owner, Release: held[:1]}); len(held) != 11 {
			t.Errorf("%d lanes are left of 12 after one was given back", len(held))
		}
		if held = acquire(outbox.LaneRequest{Owner: hot.Owner, End: true}); len(held) != 0 {
			t.Errorf("%d lanes are left after the end", len(held))
		}
	})
}
