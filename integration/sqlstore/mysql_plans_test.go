package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/outbox"
)

// work is what the one connection of a pool has done in the server.
type work struct{ read, sorted int64 }

// workOf reads it from the server, which counts rows as they are read from
// tables, from indexes and from what statements have made for themselves. Entries of
// an index that InnoDB itself passes over, by a condition that was handed down to it,
// are counted apart, and by MariaDB alone.
func workOf(tb testing.TB, db *sql.DB) (w work) {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), `SHOW SESSION STATUS WHERE variable_name LIKE 'Handler_read%' OR variable_name IN ('Sort_rows', 'Handler_icp_attempts', 'Handler_icp_match')`)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			tb.Fatal(err)
		}
		switch name {
		case "Sort_rows":
			w.sorted += n
		case "Handler_icp_match": // read, and counted so
			w.read -= n
		default:
			w.read += n
		}
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return w
}

// planned is a store with a large backlog on one connection.
type planned struct {
	testing.TB
	s    stores.Store
	db   *sql.DB
	when string
	keys int   // that are parked
	died int64 // when a dead letter in the midst of the others died
	// maria tells MariaDB from MySQL itself.
	maria bool
}

// atMost runs a call and holds the rows that it reads and sorts against limits.
func (p *planned) atMost(what string, read, sorted int, call func() error) {
	p.Helper()
	before := workOf(p, p.db)
	if err := call(); err != nil {
		p.Fatalf("%s, %s: %v", what, p.when, err)
	}
	after := workOf(p, p.db)
	// The look itself is counted as well.
	r, s := after.read-before.read-100, after.sorted-before.sorted
	p.Logf("%s, %s: read %d rows, sorted %d", what, p.when, r, s)
	if r > int64(read) || s > int64(sorted) {
		p.Errorf("%s, %s: it reads %d rows and sorts %d, limit %d and %d", what, p.when, r, s, read, sorted)
	}
}

// TestMySQLPlans: a call reads as many rows as it is about, and sorts no more,
// however many there are, on tables that have grown since their statistics were
// made and on fresh ones.
func TestMySQLPlans(t *testing.T) {
	t.Parallel()
	_, db, dsn := crowded(t, mysql)
	one := mysql.openOne(t, dsn)
	p := &planned{TB: t, s: mysql.store(t, one, crowdedRoutes), db: one, maria: isMariaDB(t, db)}
	p.died = number(t, db, `SELECT died_at FROM postrider_dead ORDER BY died_at LIMIT 1 OFFSET 10000`)
	p.keys = int(number(t, db, `SELECT count(*) FROM postrider_parked_keys`))
	for _, when := range []string{"never analyzed", "analyzed"} {
		p.when = when
		if when == "analyzed" {
			rows := must(db.QueryContext(t.Context(), `ANALYZE TABLE postrider_outbox, postrider_deferred, postrider_dead, postrider_parked_keys, postrider_inbox`))
			for rows.Next() {
			}
			rows.Close()
		}
		p.contract()
		p.producers()
		p.relay()
	}
}

// row is a row of the outbox, or of those that are deferred, in the midst of the
// others.
func (p *planned) row(from string) (id outbox.ID) {
	p.Helper()
	var raw []byte
	if err := p.db.QueryRowContext(p.Context(), `SELECT id FROM `+from+` LIMIT 1 OFFSET 1500`).Scan(&raw); err != nil {
		p.Fatal(err)
	}
	return outbox.ID(raw)
}

// contract is what knows a row by its id alone.
func (p *planned) contract() {
	ctx, later := p.Context(), time.Now().Add(2*time.Hour)
	for _, from := range []string{"postrider_outbox WHERE key_hash IS NULL", "postrider_outbox WHERE key_hash IS NOT NULL", "postrider_deferred"} {
		c := outbox.Claim{ID: p.row(from), Token: outbox.NewToken()}
		for _, call := range []struct {
			name string
			run  func() (bool, error)
		}{
			{"claim", func() (bool, error) { return p.s.TryClaim(ctx, c, later, later.Add(time.Hour)) }},
			{"renew claim", func() (bool, error) { return p.s.RenewClaim(ctx, c, later, later.Add(2*time.Hour)) }},
			{"release claim", func() (bool, error) { return p.s.ReleaseClaim(ctx, c, later) }},
			{"claim again", func() (bool, error) { return p.s.TryClaim(ctx, c, later, later.Add(time.Hour)) }},
			{"record failure", func() (bool, error) { return p.s.RecordFailure(ctx, c, later, outbox.Failure{Reason: "no"}) }},
			{"claim for the last time", func() (bool, error) { return p.s.TryClaim(ctx, c, later, later.Add(time.Hour)) }},
			{"complete", func() (bool, error) { return p.s.Complete(ctx, c, later) }},
		} {
			p.atMost(call.name+" of one of "+from, 800, 100, func() error {
				ok, err := call.run()
				if err == nil && !ok {
					p.Errorf("%s of one of %s: false", call.name, from)
				}
				return err
			})
		}
	}
	recs := make([]outbox.Record, 128)
	for _, lane := range []outbox.Lane{outbox.Unordered, hotLane} {
		after := p.row("postrider_outbox ORDER BY id")
		// A statement for all lanes of a kind takes a batch of each.
		p.atMost("read pending", 8*2*128*6, 8*2*128, func() error {
			_, err := p.s.ReadPending(ctx, outbox.ReadRequest{Lane: lane, Now: later, After: after}, recs)
			return err
		})
	}
	// What is not due yet is passed over.
	p.atMost("read pending before anything scheduled is due", backlog()/10, 8*2*128, func() error {
		_, err := p.s.ReadPending(ctx, outbox.ReadRequest{Lane: hotLane, Now: time.Now()}, recs)
		return err
	})
	p.atMost("oldest pending", 24*2*128*6, 24*2*128, func() error { _, _, err := p.s.OldestPending(ctx, later); return err })
	letters := make([]outbox.DeadLetter, 128)
	for _, q := range []outbox.DeadQuery{
		{AfterTime: time.UnixMicro(p.died)}, {Route: "default", AfterTime: time.UnixMicro(p.died)}, {Route: "rare"},
	} {
		p.atMost("list dead letters of route "+q.Route, 1000, 0, func() error {
			n, err := p.s.ListDead(ctx, q, letters)
			if want := min(len(letters), backlog()/2/5000); n < want {
				p.Errorf("listed %d dead letters of route %q, want %d", n, q.Route, want)
			}
			return err
		})
	}
	ids := make([]outbox.ID, 200)
	for i := range ids {
		ids[i] = p.row("postrider_dead WHERE died_at > " + fmt.Sprint(p.died+int64(50*i)))
	}
	// Each id is looked for in every lane.
	p.atMost("replay 100 dead letters of many", 100*26*8, 200, func() error {
		res, err := p.s.ReplayDead(ctx, "test", ids[:100]...)
		if res.Replayed != 100 {
			p.Errorf("replayed %d dead letters, want 100", res.Replayed)
		}
		return err
	})
	p.atMost("discard 100 dead letters", 100*8, 100, func() error {
		n, err := p.s.DiscardDead(ctx, "test", ids[100:]...)
		if n != 100 {
			p.Errorf("discarded %d dead letters, want 100", n)
		}
		return err
	})
	p.atMost("count dead letters", backlog()/2+1000, 0, func() error { _, err := p.s.CountDead(ctx, ""); return err })
	p.atMost("list parked keys", 2*p.keys, 0, func() error { _, err := p.s.ParkedKeys(ctx, nil); return err })
}

// producers is what happens beside their transactions and in them.
func (p *planned) producers() {
	recs := make([]outbox.Record, 100)
	for i := range recs {
		recs[i] = record("hot")
	}
	// Each id is looked for in every lane of its route, hot and deferred.
	p.atMost("enlist", 100*24*2*4, 100, func() error { return tryEnlist(p.Context(), p.s, p.db, recs...) })
	p.atMost("purge the inbox", 128*6, 128, func() error {
		_, err := p.s.(interface {
			Purge(ctx context.Context, now time.Time, limit int) (int, error)
		}).Purge(p.Context(), time.Now(), 128)
		return err
	})
}

// relay is what the owner of all lanes does.
func (p *planned) relay() {
	ctx := p.Context()
	owner := outbox.NewID()
	var g outbox.LaneGrant
	acquire := func(r outbox.LaneRequest) func() error {
		return func() (err error) {
			r.Owner, r.Routes, r.TTL = owner, []string{"default"}, 10*time.Minute
			g, err = p.s.AcquireLanes(ctx, r)
			return err
		}
	}
	p.atMost("acquire 24 lanes", 24*20, 100, acquire(outbox.LaneRequest{Want: 100}))
	p.atMost("renew 24 lanes", 24*20, 100, acquire(outbox.LaneRequest{}))
	var middle int64
	if err := p.db.QueryRowContext(ctx, `SELECT pos FROM postrider_outbox WHERE lane = ? ORDER BY pos LIMIT 1 OFFSET 10000`, hotLane).Scan(&middle); err != nil {
		p.Fatal(err)
	}
	// For the latest row of a key that is not seen MySQL reads all of the key's below
	// the cursor, if it holds them for few: 10,000 of the hot one.
	unseen := 0
	if !p.maria {
		unseen = 11_000
	}
	reads := make([]outbox.LaneRead, 24)
	for i := range reads {
		reads[i] = outbox.LaneRead{Lane: outbox.Lane(i + 1), After: middle}
	}
	rows := make([]outbox.LaneRow, 24*32)
	p.atMost("read 24 lanes", 24*32*6+unseen, 24*32, func() error {
		n, err := p.s.ReadLanes(ctx, reads, rows)
		if n < 300 {
			p.Errorf("read %d rows, want 300", n)
		}
		return err
	})
	// What is seen lies 512 positions below the cursor; most of it is of one key.
	seen := []outbox.LaneRead{{Lane: hotLane, After: middle, Seen: []outbox.SeenKey{{Hash: outbox.KeyHash([]byte("hot")), Pos: middle - 512}}}}
	p.atMost("read beside a key that is seen", 32*6+2*1024, 32, func() error {
		_, err := p.s.ReadLanes(ctx, seen, rows[:32])
		return err
	})
	p.atMost("sweep 24 lanes", 24*32*6, 24*32, func() error {
		_, err := p.s.SweepLanes(ctx, reads, make([]outbox.LaneSpot, 24*32))
		return err
	})
	key := []outbox.LaneRead{{Lane: hotLane, After: middle, Keys: [][]byte{[]byte("hot")}}}
	p.atMost("read a key", 512*6+unseen, 512, func() error {
		n, err := p.s.ReadLanes(ctx, key, rows[:512])
		if n != 512 {
			p.Errorf("read %d rows of a key, want 512", n)
		}
		return err
	})
	lease := g.Leases[hotLane-1]
	settle := func(outcome outbox.SettleOutcome, rows []outbox.LaneRow, want outbox.SettleResult) func() error {
		return func() error {
			r := outbox.SettleRequest{Owner: lease.Owner, TriedTo: []outbox.LaneMark{{Lane: hotLane, Epoch: lease.Epoch, Pos: middle}}}
			for _, row := range rows {
				r.Settlements = append(r.Settlements, outbox.Settlement{
					Lane: row.Lane, Epoch: lease.Epoch, Pos: row.Pos, ID: row.Record.ID, Outcome: outcome, Attempts: row.Record.Attempts, Reason: "no",
				})
			}
			res, err := p.s.SettleLanes(ctx, r)
			for i, got := range res {
				if got != want {
					p.Errorf("settlement %d of outcome %d: got %d, want %d", i, outcome, got, want)
					break
				}
			}
			return err
		}
	}
	p.atMost("settle 100 accepted rows", 100*8, 100, settle(outbox.SettleAccepted, rows[:100], outbox.Settled))
	p.atMost("settle 100 rows that are gone", 100*20, 100, settle(outbox.SettleAccepted, rows[:100], outbox.Gone))
	p.atMost("settle 100 failed rows", 100*12, 100, settle(outbox.SettleFailed, rows[100:200], outbox.Settled))
	p.atMost("bury 100 rows", 100*20, 100, settle(outbox.SettleDead, rows[200:300], outbox.Settled))
	// The last 1,024 dead letters of their key are looked for, and written.
	p.atMost("settle 100 rows and count them", 100*20+1024*8, 100, func() error {
		later(p, p.s, lease, outbox.SettleAccepted, rows[300:400])
		return nil
	})
	ids := make([]outbox.ID, 0, 100)
	for _, row := range rows[200:300] {
		ids = append(ids, row.Record.ID)
	}
	// Each id is looked for in every lane.
	p.atMost("replay 100 dead letters", 100*24*8, 200, func() error { _, err := p.s.ReplayDead(ctx, "test", ids...); return err })

	promote := func(want int) func() error {
		return func() error {
			n, _, err := p.s.PromoteLanes(ctx, g.Leases, rows[:100])
			if n != want {
				p.Errorf("promoted %d rows, want %d", n, want)
			}
			return err
		}
	}
	p.atMost("promote nothing", 24*20, 100, promote(0))
	exec(p, p.db, `UPDATE postrider_deferred SET due_at = due_at - 10000000000`)
	// Of each lane a batch is looked at.
	p.atMost("promote 100 rows", 24*128*4, 24*128, promote(100))
	exec(p, p.db, `UPDATE postrider_deferred SET due_at = due_at + 10000000000`)

	if ok, err := p.s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("hot")}); err != nil || !ok {
		p.Fatalf("park: got %v, %v", ok, err)
	}
	renew := func() { // leases know of an operator's command after that
		if err := acquire(outbox.LaneRequest{})(); err != nil {
			p.Fatal(err)
		}
	}
	renew()
	move := func() error {
		n, _, err := p.s.MoveParked(ctx, g.Leases, 100)
		if n != 100 {
			p.Errorf("moved %d rows of a parked key, want 100", n)
		}
		return err
	}
	// Each parked key is looked up.
	p.atMost("move 100 rows aside", 100*20+3*p.keys, 200, move)
	if ok, err := p.s.UnparkKey(ctx, "default", []byte("hot"), "test"); err != nil || !ok {
		p.Fatalf("unpark: got %v, %v", ok, err)
	}
	renew()
	p.atMost("move 100 rows back", 100*20+3*p.keys, 200, move)
	if keys, err := p.s.ParkedKeys(ctx, []outbox.Lane{hotLane}); err != nil || len(keys) != 0 {
		p.Fatalf("keys that are still parked: got %d, %v, want 0", len(keys), err)
	}
	if ok, err := p.s.UnparkKey(ctx, "default", asideKey, "test"); err != nil || !ok {
		p.Fatalf("unpark: got %v, %v", ok, err)
	}
	renew()
	p.atMost("move 100 rows back of many", 100*20+3*p.keys, 200, move)
	if ok, err := p.s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: asideKey}); err != nil || !ok {
		p.Fatalf("park: got %v, %v", ok, err)
	}
	renew()
	p.atMost("move 100 rows aside again", 100*20+3*p.keys, 200, move)
	if err := acquire(outbox.LaneRequest{End: true})(); err != nil {
		p.Fatal(err)
	}
}
