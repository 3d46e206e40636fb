package sqlstore_test

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// waitForLock returns when somebody in the database waits for a lock.
func waitForLock(tb testing.TB, e engine, db *sql.DB) {
	tb.Helper()
	waits := func() bool {
		return number(tb, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	}
	switch e.dialect {
	case sqlstore.MySQL:
		// To InnoDB on MySQL a transaction that has only read is not started.
		const locks = `SELECT /*!80022 count(*) FROM performance_schema.data_locks WHERE lock_status = 'WAITING' AND object_schema = DATABASE() *//*M! 0 */`
		waits = func() bool { return len(transactions(tb, db, "LOCK WAIT")) > 0 || number(tb, db, locks) > 0 }
	case sqlstore.SQLServer:
		waits = func() bool {
			return number(tb, db, `SELECT COUNT(*) FROM sys.dm_exec_requests WHERE database_id = DB_ID() AND blocking_session_id <> 0`) > 0
		}
	case sqlstore.Oracle:
		var user string
		if err := db.QueryRowContext(tb.Context(), `SELECT USER FROM DUAL`).Scan(&user); err != nil {
			tb.Fatal(err)
		}
		waits = func() bool { return testenv.OracleWaits(tb, user) }
	}
	for end := time.Now().Add(time.Minute); !waits(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatal("nobody waits for a lock")
		}
	}
}

// threadLine names the connection that a transaction of InnoDB's is of.
var threadLine = regexp.MustCompile(`thread id (\d+)`)

// transactions are those in the database that are in a state, as InnoDB tells of
// them. The table information_schema.innodb_trx does not: it is a copy, renewed
// only when nobody on the server has looked at it for 100 ms.
func transactions(tb testing.TB, db *sql.DB, state string) (list []string) {
	tb.Helper()
	var kind, name, status string
	if err := db.QueryRowContext(tb.Context(), `SHOW ENGINE INNODB STATUS`).Scan(&kind, &name, &status); err != nil {
		tb.Fatal(err)
	}
	for _, trx := range strings.Split(status, "---TRANSACTION")[1:] {
		if m := threadLine.FindStringSubmatch(trx); m != nil && strings.Contains(trx, state) &&
			number(tb, db, `SELECT count(*) FROM `+testenv.MySQLSessions+` WHERE db = DATABASE() AND id = ?`, m[1]) > 0 {
			list = append(list, trx)
		}
	}
	return list
}

// TestLaneLocks holds a lane as an acquisition does, until its commit, and looks
// at what would go wrong if nobody waited for that: a claim beside the new
// owner, and an outcome of the old owner after the new one has begun.
func TestLaneLocks(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, s stores.Store, row outbox.LaneRow, old outbox.LaneLease) string{
		"claim": func(ctx context.Context, s stores.Store, row outbox.LaneRow, _ outbox.LaneLease) string {
			now := time.Now()
			ok, err := s.TryClaim(ctx, outbox.Claim{ID: row.Record.ID, Token: outbox.NewToken()}, now, now.Add(time.Hour))
			if err != nil {
				return err.Error()
			}
			if ok {
				return "a row of a leased lane was claimed"
			}
			return ""
		},
		"settle": func(ctx context.Context, s stores.Store, row outbox.LaneRow, old outbox.LaneLease) string {
			res, err := s.SettleLanes(ctx, outbox.SettleRequest{
				Owner: old.Owner,
				Settlements: []outbox.Settlement{{
					Lane: row.Lane, Epoch: old.Epoch, Pos: row.Pos, ID: row.Record.ID, Outcome: outbox.SettleFailed, Attempt: true, Reason: "no",
				}},
				TriedTo: []outbox.LaneMark{{Lane: row.Lane, Epoch: old.Epoch, Pos: row.Pos}},
			})
			if err != nil {
				return err.Error()
			}
			if res[0] != outbox.Fenced {
				return "an outcome of the old owner was written"
			}
			return ""
		},
		"mark": func(ctx context.Context, s stores.Store, row outbox.LaneRow, old outbox.LaneLease) string {
			_, err := s.SettleLanes(ctx, outbox.SettleRequest{Owner: old.Owner, TriedTo: []outbox.LaneMark{{Lane: row.Lane, Epoch: old.Epoch, Pos: row.Pos}}})
			if err != nil {
				return err.Error()
			}
			return ""
		},
		"promote": func(ctx context.Context, s stores.Store, row outbox.LaneRow, old outbox.LaneLease) string {
			n, _, err := s.PromoteLanes(ctx, []outbox.LaneLease{old}, make([]outbox.LaneRow, 8))
			if err != nil {
				return err.Error()
			}
			if n != 0 {
				return "the old owner promoted a row"
			}
			return ""
		},
		"move parked": func(ctx context.Context, s stores.Store, row outbox.LaneRow, old outbox.LaneLease) string {
			n, _, err := s.MoveParked(ctx, []outbox.LaneLease{old}, 8)
			if err != nil {
				return err.Error()
			}
			if n != 0 {
				return "the old owner moved a row aside"
			}
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(t *testing.T, e engine) {
				s, db, _ := e.migrated(t, nil)
				ctx := t.Context()
				due := record("hot")
				due.Message.DeliverAt = time.Now().Add(-time.Hour)
				enlist(t, s, db, record("hot"), due)
				owner := outbox.NewID()
				request := outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 24, TTL: time.Minute}
				g, err := s.AcquireLanes(ctx, request)
				if err != nil {
					t.Fatal(err)
				}
				old := g.Leases[hotLane-1]
				rows := make([]outbox.LaneRow, 8)
				if n, err := s.ReadLanes(ctx, []outbox.LaneRead{{Lane: hotLane}}, rows); err != nil || n != 1 {
					t.Fatalf("read: %d rows, %v", n, err)
				}
				if ok, err := s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("hot")}); err != nil || !ok {
					t.Fatal(ok, err)
				}
				request.End = true
				if _, err := s.AcquireLanes(ctx, request); err != nil {
					t.Fatal(err)
				}
				if name == "claim" {
					// A parked key is not claimed anyway.
					exec(t, db, e.sql(`DELETE FROM postrider_parked_keys`))
				} else {
					exec(t, db, e.sql(`UPDATE postrider_lanes SET owner = $1`), e.id(owner))
				}

				// The other relay has taken the lane and is about to commit.
				other := e.id(outbox.NewID())
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				for _, text := range []string{
					`INSERT INTO postrider_relays (owner, expires_at, routes) VALUES ($1, 9000000000000000, '["default"]')`,
					`UPDATE postrider_lanes SET owner = $1, epoch = epoch + 1`,
				} {
					if _, err := tx.ExecContext(ctx, e.sql(text), other); err != nil {
						t.Fatal(err)
					}
				}
				result := make(chan string, 1)
				go func() { result <- call(ctx, s, rows[0], old) }()
				waitForLock(t, e, db)
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				if wrong := <-result; wrong != "" {
					t.Error(wrong)
				}
				if n := number(t, db, e.sql(`SELECT count(*) FROM postrider_outbox WHERE attempts = 0 AND claim_token IS NULL`)); n != 1 {
					t.Errorf("untouched hot rows: got %d, want 1", n)
				}
				if n := number(t, db, e.sql(`SELECT max(tried_to) FROM postrider_lane_marks`)); n != 0 {
					t.Errorf("tried to: got %d, want 0", n)
				}
			}, postgres, mysql, native, oracle, sqlserver)
		})
	}
}
