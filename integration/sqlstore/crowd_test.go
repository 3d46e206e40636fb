package sqlstore_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// crowdedRoutes are two routes, of which nearly everything belongs to the first.
var crowdedRoutes = &sqlstore.Options{Routes: []outbox.Route{{Name: "default"}, {Name: "rare", Ordered: 1, Unordered: 1}}}

// asideKey is a parked key in another lane than the key "hot".
var asideKey, asideLane = func() ([]byte, outbox.Lane) {
	for i := 0; ; i++ {
		key := fmt.Append(nil, "aside", i)
		if lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, key); lane != hotLane {
			return key, lane
		}
	}
}()

// crowded is a store of the two routes with backlog() skewed rows and half as many
// each of dead letters, of rows of parked keys and of inbox records. Of the dead
// letters seven in ten are of the key "hot" and lie before all its rows, and every
// 5,000th is of the route "rare"; seven in eight parked rows are of asideKey, the
// others of up to ten thousand keys.
func crowded(tb testing.TB, e engine) (s stores.Store, db *sql.DB, dsn string) {
	tb.Helper()
	began := time.Now()
	s, db, dsn = e.migrated(tb, crowdedRoutes)
	// Room for the positions of what is dead or aside already.
	const room = 9_000_000
	restart, number, text := `ALTER SEQUENCE postrider_outbox_pos RESTART 10000000`, `convert_to('p' || pos % 10000, 'UTF8')`, `'m' || pos`
	if e.dialect == sqlstore.MySQL {
		restart, number, text = `ALTER TABLE postrider_outbox AUTO_INCREMENT = 10000000`, `CONCAT('p', pos % 10000)`, `CONCAT('m', pos)`
	}
	exec(tb, db, restart)
	n := backlog()
	skewedMore(tb, e, s, db, n)
	const cols = `message_type, destination, body, created_at, ce_source`
	exec(tb, db, fmt.Sprintf(`INSERT INTO postrider_dead (id, pos, died_at, lane, key_hash, ordering_key, reason, transport, %s)
SELECT %s, pos - %d, pos, lane, key_hash, ordering_key, 'no', CASE WHEN pos %% 5000 = 0 THEN 'rare' ELSE transport END, %[1]s
  FROM postrider_outbox ORDER BY pos LIMIT %[4]d`, cols, otherID(e, "dead"), room, n/2))
	exec(tb, db, fmt.Sprintf(`INSERT INTO postrider_deferred (id, pos, lane, key_hash, ordering_key, transport, %s)
SELECT %s, pos - %d, CASE WHEN ordering_key = 'hot' THEN %d ELSE 1 + pos %% 16 END,
  CASE WHEN ordering_key = 'hot' THEN %d ELSE pos %% 10000 * 900000000000000 END,
  CASE WHEN ordering_key = 'hot' THEN '%s' ELSE %s END, transport, %[1]s
  FROM postrider_outbox WHERE ordering_key = 'hot' OR key_hash IS NOT NULL AND 1 + pos %% 16 <> %[8]d ORDER BY pos LIMIT %[9]d`,
		cols, otherID(e, "aside"), room, asideLane, outbox.KeyHash(asideKey), asideKey, number, hotLane, n/2))
	exec(tb, db, `INSERT INTO postrider_parked_keys (lane, key_hash, ordering_key, parked_by, parked_at, why)
SELECT DISTINCT lane, key_hash, ordering_key, 'test', 1, 'test' FROM postrider_deferred WHERE due_at IS NULL`)
	exec(tb, db, fmt.Sprintf(`INSERT INTO postrider_inbox (consumer, message_id, processed_at, expires_at)
SELECT CASE WHEN pos %% 3 = 0 THEN 'books' ELSE 'bills' END, %s, 1, CASE WHEN pos %% 2 = 0 THEN pos ELSE 9000000000000000 END
  FROM postrider_outbox ORDER BY pos LIMIT %d`, text, n/2))
	tb.Logf("%d rows, and %d each of dead letters, parked rows and inbox records, after %v", n, n/2, time.Since(began).Round(time.Second))
	return s, db, dsn
}

// otherID is an expression for an id beside that of a row.
func otherID(e engine, salt string) string {
	if e.dialect == sqlstore.MySQL {
		return fmt.Sprintf(`CONCAT(LEFT(id, 10), LEFT(UNHEX(SHA2(CONCAT(id, '%s'), 256)), 6))`, salt)
	}
	return fmt.Sprintf(`overlay(id::text PLACING substr(md5(id::text || '%s'), 1, 12) FROM 25)::uuid`, salt)
}
