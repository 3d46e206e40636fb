package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// TestSessions: a relay's connection has settings of its own, and none of them
// is ever met on a connection of the pool.
func TestSessions(t *testing.T) {
	t.Parallel()
	e := postgres
	s, db, _ := e.migrated(t, nil)
	ctx := t.Context()
	names := []string{"plan_cache_mode", "jit", "enable_bitmapscan", "enable_seqscan", "enable_hashjoin", "enable_mergejoin",
		"default_transaction_isolation", "statement_timeout", "idle_in_transaction_session_timeout", "application_name"}
	settings := func() string {
		var all []string
		for _, name := range names {
			var v string
			if err := db.QueryRowContext(ctx, `SELECT current_setting($1)`, name).Scan(&v); err != nil {
				t.Fatal(err)
			}
			all = append(all, name+"="+v)
		}
		return strings.Join(all, " ")
	}
	before := settings()
	purposes := []string{"read", "sweep", "settle", "lease"}
	var open []outbox.LaneSession
	for _, p := range purposes {
		ses, err := s.LaneSession(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, ses)
		if n := number(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, "postrider "+p); n != 1 {
			t.Errorf("connections for %q: got %d, want 1", p, n)
		}
		if _, err := ses.ReadLanes(ctx, []outbox.LaneRead{{Lane: 1}}, make([]outbox.LaneRow, 8)); err != nil {
			t.Errorf("read on session %q: %v", p, err)
		}
	}
	if n := db.Stats().InUse; n != len(open) {
		t.Errorf("connections in use: got %d, want %d", n, len(open))
	}
	for _, ses := range open {
		if err := ses.Close(); err != nil {
			t.Error(err)
		}
		if err := ses.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	}
	// Whatever connection the pool hands out now, at once and in parallel.
	var held []*sql.Conn
	for range 8 {
		c, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
		var name string
		if err := c.QueryRowContext(ctx, `SELECT current_setting('application_name') || current_setting('plan_cache_mode')`).Scan(&name); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "postrider") || strings.Contains(name, "custom") {
			t.Errorf("a session's settings came back with a connection of the pool: %s", name)
		}
	}
	for _, c := range held {
		c.Close()
	}
	if after := settings(); after != before {
		t.Errorf("settings of the pool: got %s, want %s", after, before)
	}
	// Nor do those of a transaction of the store's outlive it.
	if _, err := s.PendingCount(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	if after := settings(); after != before {
		t.Errorf("settings after a transaction: got %s, want %s", after, before)
	}
	// The server ends a connection that was closed in its own time.
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		n := number(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'postrider %'`)
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("connections of closed sessions: got %d, want 0", n)
		}
	}
}

// TestSessionAfterError: a session whose connection was cut fails, closes
// quietly, and the next one works.
func TestSessionAfterError(t *testing.T) { onServers(t, sessionAfterError) }

func sessionAfterError(t *testing.T, e engine) {
	s, db, dsn := e.migrated(t, nil)
	pinned := int64(0)
	if e.dialect == sqlstore.MySQL {
		// A session there has no name, but it takes the pool's only connection.
		relay := e.openOne(t, dsn)
		pinned = number(t, relay, `SELECT CONNECTION_ID()`)
		s = e.store(t, db, &sqlstore.Options{RelayDB: relay})
	}
	ses, err := s.LaneSession(t.Context(), "read")
	if err != nil {
		t.Fatal(err)
	}
	if pinned != 0 {
		exec(t, db, fmt.Sprintf(`KILL %d`, pinned))
	} else if n := number(t, db, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'postrider read'`); n != 1 {
		t.Fatalf("backends ended: %d", n)
	}
	read := func(ses outbox.LaneSession) error {
		_, err := ses.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: 1}}, make([]outbox.LaneRow, 8))
		return err
	}
	if read(ses) == nil {
		t.Error("reading over a connection that was cut succeeded")
	}
	if err := ses.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	next, err := s.LaneSession(t.Context(), "read")
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := read(next); err != nil {
		t.Errorf("the next session: %v", err)
	}
}

// TestCancelledTransactionIsNotLeftOpen: a call that is cancelled while it waits
// for a lock leaves neither a transaction nor its lock.
func TestCancelledTransactionIsNotLeftOpen(t *testing.T) {
	onServers(t, cancelledTransactionIsNotLeftOpen)
}

func cancelledTransactionIsNotLeftOpen(t *testing.T, e engine) {
	s, db, _ := e.migrated(t, nil)
	blocker, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Rollback()
	if _, err := blocker.ExecContext(t.Context(), `SELECT 1 FROM postrider_lanes FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("k")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want context.DeadlineExceeded", err)
	}
	if err := blocker.Rollback(); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.ParkKey(t.Context(), outbox.ParkedKey{Route: "default", Key: []byte("k")}); err != nil || !ok {
		t.Errorf("afterwards: got %v, %v", ok, err)
	}
}

func TestPoolTooSmall(t *testing.T) {
	onSQL(t, func(t *testing.T, e engine) {
		s, db, dsn := e.migrated(t, nil)
		db.SetMaxOpenConns(3)
		var open []outbox.LaneSession
		defer func() {
			for _, ses := range open {
				ses.Close()
			}
		}()
		for range 2 {
			ses, err := s.LaneSession(t.Context(), "read")
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, ses)
		}
		_, err := s.LaneSession(t.Context(), "read")
		if !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "SetMaxOpenConns") || !strings.Contains(err.Error(), "needs 5") {
			t.Errorf("a session too many: got %v", err)
		}
		if err := open[0].Close(); err != nil {
			t.Fatal(err)
		}
		ses, err := s.LaneSession(t.Context(), "read")
		if err != nil {
			t.Fatalf("after one was closed: %v", err)
		}
		open = append(open, ses)

		// A pool of its own may be pinned to the last connection.
		relay := e.open(t, dsn)
		relay.SetMaxOpenConns(1)
		db.SetMaxOpenConns(1)
		own := e.store(t, e.open(t, dsn), &sqlstore.Options{RelayDB: relay})
		ses, err = own.LaneSession(t.Context(), "read")
		if err != nil {
			t.Fatalf("with a pool for the relay: %v", err)
		}
		open = append(open, ses)
	})
}

// TestPoolOfOneConnection: the caller's transaction has it; Enlist does not wait
// for another one. A route that nobody knows must be looked for, and the wait
// ends with the caller's patience.
func TestPoolOfOneConnection(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		_, _, dsn := e.migrated(t, nil)
		db := e.openOne(t, dsn)
		s := e.store(t, db, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		tx, err := stores.Begin(ctx, db)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := tx.Enlist(ctx, s, record("k"), record("")); err != nil {
			t.Fatalf("enlist: %v", err)
		}
		r := record("k")
		r.Transport = "unknown"
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		if err := tx.Enlist(short, s, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("enlist into an unknown route: got %v, want context.DeadlineExceeded", err)
		}
		if err := tx.Enlist(ctx, s, record("k")); err != nil {
			t.Errorf("enlist afterwards: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSQLiteRenewalLooksOften: where producers hold the write lock nearly all the
// time, a renewal gets it by looking every few milliseconds; SQLite's own waiting
// sleeps up to 100 ms between two looks.
func TestSQLiteRenewalLooksOften(t *testing.T) {
	t.Parallel()
	e := sqlite
	_, db, dsn := e.migrated(t, nil)
	c := &counter{base: db.Driver(), dsn: dsn}
	counted := sql.OpenDB(c)
	defer counted.Close()
	ses, err := e.store(t, counted, nil).LaneSession(t.Context(), "lease")
	if err != nil {
		t.Fatal(err)
	}
	defer ses.Close()
	producer, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Rollback()
	renewed := make(chan error, 1)
	go func() {
		_, err := ses.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 24, TTL: time.Minute})
		renewed <- err
	}()
	const looks = 50
	for end := time.Now().Add(time.Minute); c.count("BEGIN IMMEDIATE") < looks; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("a renewal looked %d times for the lock in a minute, want %d", c.count("BEGIN IMMEDIATE"), looks)
			break
		}
	}
	if err := producer.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-renewed; err != nil {
		t.Errorf("renew: %v", err)
	}
}

// TestSQLiteRenewalBesideBusyWriters: producers of other processes hold the
// write lock most of the time; renewals get in, and a session gives its
// connection back as it was.
func TestSQLiteRenewalBesideBusyWriters(t *testing.T) {
	t.Parallel()
	e := sqlite
	s, db, dsn := e.migrated(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		other := e.open(t, dsn)
		producer := e.store(t, other, nil)
		wg.Go(func() {
			for ctx.Err() == nil {
				tx, err := stores.Begin(ctx, other)
				if err != nil {
					continue
				}
				if err := tx.Enlist(ctx, producer, record("k"), record("")); err == nil {
					time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					tx.Commit()
				}
				tx.Rollback()
				time.Sleep(time.Millisecond)
			}
		})
	}
	ses, err := s.LaneSession(ctx, "lease")
	if err != nil {
		t.Fatal(err)
	}
	owner := outbox.NewID()
	worst := time.Duration(0)
	for range 25 {
		start := time.Now()
		if _, err := ses.AcquireLanes(ctx, outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 24, TTL: 2 * time.Minute}); err != nil {
			t.Fatalf("renew: %v", err)
		}
		worst = max(worst, time.Since(start))
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("slowest renewal: %v", worst)
	cancel()
	wg.Wait()
	if err := ses.Close(); err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	if n := number(t, db, `PRAGMA busy_timeout`); n != 5000 {
		t.Errorf("busy_timeout of the pool: got %d, want 5000", n)
	}
}

// TestLanesHaveOneOwner: many relays come, hold, let their window end, renew
// late, give back and leave. Whatever they do, an epoch of a lane is granted to
// one owner only, and what is granted later is higher.
func TestLanesHaveOneOwner(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		_, _, dsn := e.migrated(t, &sqlstore.Options{Routes: []outbox.Route{{Name: "default", Ordered: 4, Unordered: 2}}})
		type grant struct {
			lane  outbox.Lane
			epoch int64
		}
		var mu sync.Mutex
		owners := map[grant]outbox.ID{}
		highest := map[outbox.Lane]int64{}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		takeovers := 0
		// It goes on until it has met what it is about, on a slow machine too.
		begun := time.Now()
		over := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ctx.Err() != nil || time.Since(begun) > 6*time.Second && takeovers > 0 && len(owners) >= 20
		}
		for range 6 {
			db := e.open(t, dsn)
			s := e.store(t, db, nil)
			wg.Go(func() {
				owner, held := outbox.NewID(), []outbox.LaneLease(nil)
				for !over() {
					r := outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 1 + rand.IntN(6), TTL: time.Second}
					switch rand.IntN(12) {
					case 0:
						r.End = true
					case 1:
						r.Release = held
					case 2: // about the length of the window: a late renewal
						time.Sleep(950*time.Millisecond + rand.N(150*time.Millisecond))
					}
					// Before the call: what it is granted must be higher than
					// anything that was granted before it began.
					mu.Lock()
					floor := map[outbox.Lane]int64{}
					for n, epoch := range highest {
						floor[n] = epoch
					}
					mu.Unlock()
					g, err := s.AcquireLanes(ctx, r)
					switch {
					case errors.Is(err, outbox.ErrOwnerEnded):
						owner, held = outbox.NewID(), nil
						continue
					case err != nil:
						if ctx.Err() == nil {
							t.Errorf("acquire: %v", err)
						}
						return
					case r.End:
						if len(g.Leases) != 0 {
							t.Errorf("an ended owner holds %d lanes", len(g.Leases))
						}
						owner, held = outbox.NewID(), nil
						continue
					}
					had := map[grant]bool{}
					for _, l := range held {
						had[grant{l.Lane, l.Epoch}] = true
					}
					mu.Lock()
					for _, l := range g.Leases {
						k := grant{l.Lane, l.Epoch}
						if other, ok := owners[k]; ok && other != owner {
							t.Errorf("lane %d epoch %d has the owners %s and %s", l.Lane, l.Epoch, other, owner)
						}
						owners[k] = owner
						if !had[k] && l.Epoch <= floor[l.Lane] {
							t.Errorf("lane %d: epoch %d was granted after epoch %d", l.Lane, l.Epoch, floor[l.Lane])
						}
						if l.Unclean {
							takeovers++
						}
						highest[l.Lane] = max(highest[l.Lane], l.Epoch)
					}
					mu.Unlock()
					held = g.Leases
					time.Sleep(rand.N(50 * time.Millisecond))
				}
			})
		}
		wg.Wait()
		if takeovers == 0 || len(owners) < 20 {
			t.Errorf("the test has not met what it is about: %d grants, %d takeovers", len(owners), takeovers)
		}
	})
}

// TestLateRenewalAndTakeover is the schedule that would make two owners if the
// expiry was judged before the lock: a renewal that began in time is overtaken
// by a relay that finds the window ended.
func TestLateRenewalAndTakeover(t *testing.T) { onServers(t, lateRenewalAndTakeover) }

func lateRenewalAndTakeover(t *testing.T, e engine) {
	s, db, dsn := e.migrated(t, nil)
	ctx := t.Context()
	slow, fast := outbox.NewID(), outbox.NewID()
	const ttl = 4 * time.Second // a slow machine needs its time until the renewal waits
	request := func(owner outbox.ID) outbox.LaneRequest {
		return outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 24, TTL: ttl}
	}
	if g, err := s.AcquireLanes(ctx, request(slow)); err != nil || len(g.Leases) != 24 {
		t.Fatalf("acquire: %d lanes, %v", len(g.Leases), err)
	}
	// The renewal starts within the window and waits for its row.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `SELECT 1 FROM postrider_relays FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	renewed := make(chan error, 1)
	other := e.store(t, e.open(t, dsn), nil)
	go func() {
		_, err := other.AcquireLanes(ctx, request(slow))
		renewed <- err
	}()
	waitForLock(t, e, db)
	time.Sleep(ttl + 100*time.Millisecond)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-renewed; !errors.Is(err, outbox.ErrOwnerEnded) {
		t.Errorf("a renewal that got its lock after the window's end: got %v, want outbox.ErrOwnerEnded", err)
	}
	g, err := s.AcquireLanes(ctx, request(fast))
	if err != nil || len(g.Leases) != 24 || g.Leases[0].Epoch != 2 || !g.Leases[0].Unclean {
		t.Errorf("take-over: got %+v, %v", g.Leases, err)
	}
	if n := number(t, db, `SELECT count(*) FROM postrider_relays WHERE ended <> 0`); n != 1 {
		t.Errorf("ended windows: got %d, want 1", n)
	}
}

// TestTransactionsThatCannotServe is refused before any statement.
func TestTransactionsThatCannotServe(t *testing.T) {
	onSQL(t, func(t *testing.T, e engine) {
		_, db, _ := e.migrated(t, nil)
		s, err := sqlstore.New(db, e.dialect, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		for _, tx := range []sqlstore.Tx{nil, (*sql.Tx)(nil)} {
			if err := s.Enlist(ctx, tx, record("k")); !errors.Is(err, outbox.ErrInvalidArgument) {
				t.Errorf("enlist in %#v: got %v, want outbox.ErrInvalidArgument", tx, err)
			}
		}
		for _, v := range []any{db, must(db.Conn(ctx)), fmt.Stringer(nil)} {
			if _, ok := v.(sqlstore.Tx); ok {
				t.Errorf("%T passes as a transaction: it would commit alone", v)
			}
			if c, ok := v.(*sql.Conn); ok {
				c.Close()
			}
		}
		for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := end(tx); err != nil {
				t.Fatal(err)
			}
			for _, recs := range [][]outbox.Record{{record("k")}, {record("k"), record("")}} {
				if err := s.Enlist(ctx, tx, recs...); !errors.Is(err, outbox.ErrTxDone) || !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("enlist in an ended transaction: got %v, want outbox.ErrTxDone and sql.ErrTxDone", err)
				}
			}
		}
	})
}

// TestReadOnlyByDefault: a relay's sessions write whatever the default is, so
// every other statement must too, or half of the relay would work.
func TestReadOnlyByDefault(t *testing.T) { onServers(t, readOnlyByDefault) }

func readOnlyByDefault(t *testing.T, e engine) {
	_, dsn := e.database(t)
	if e.dialect == sqlstore.MySQL {
		dsn = withSetting(dsn, readOnlySetting(t, e.open(t, dsn)), "1")
	} else {
		dsn = withParam(dsn, "default_transaction_read_only", "on")
	}
	db := e.open(t, dsn)
	s := e.store(t, db, nil)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	if _, err := s.ParkKey(t.Context(), outbox.ParkedKey{Route: "default", Key: []byte("k"), By: "test", Why: "test"}); err != nil {
		t.Errorf("ParkKey: %v", err)
	}
	g, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 1, TTL: time.Minute})
	if err != nil || len(g.Leases) != 1 {
		t.Errorf("AcquireLanes: got %v, %v", g.Leases, err)
	}
}
