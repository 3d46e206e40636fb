package sqlcore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
)

// MySQL 8.0.19 and later, and MariaDB 10.6 and later, with InnoDB tables.
//
// The texts are scripts, for nothing that writes returns rows; and they stay
// within what both servers speak: no LATERAL, so a read is a SELECT for each
// lane; no FOR UPDATE OF, so what must not be locked is a sub-select. An update
// of two tables at once gives its assignments no order, so they do not depend on
// one another; a table to delete from has no alias, which MariaDB would look for
// in the session's database, where there need not be one. Whatever locks names its index: a table of some rows may be
// scanned, and a scan keeps the locks of all rows, those of other relays as well.
var MySQL = &mysqlDialect

var mysqlDialect = Dialect{
	name:   "MySQL",
	engine: schema.MySQL,
	// Whatever the session's default is: at REPEATABLE READ, the server's, ranges
	// are locked and relays end in deadlocks.
	begin:       "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;; START TRANSACTION READ WRITE",
	beginPinned: "START TRANSACTION READ WRITE",
	beginRead:   "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;; START TRANSACTION READ ONLY",
	scripts:     true,
	perLane:     true,
	ddlCommits:  true,
	hides:       true,
	rows:        func(columns int) RowWriter { return &tableRows{columns: columns} },
	id:          func(id outbox.ID) any { return id[:] },
	lanes:       func(first, n int64) any { return numbers('[', first, n, ']') },
	// A backslash escapes, or does not, as the session's sql_mode says.
	literal: func(s string) string {
		if strings.Contains(s, `\`) {
			return fmt.Sprintf("x'%x'", s)
		}
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	},
	missing: func(err error) bool { c := codeMySQL(err); return c == 1146 || c == 1049 },
	stale:   func(err error) bool { c := codeMySQL(err); return c == 1176 || c == 1054 },
	busy: func(err error) bool {
		// Deadlock, lock wait timeout, and MariaDB's "record has changed".
		return slices.Contains([]int{1213, 1205, 1020}, codeMySQL(err))
	},
	held:  func(err error) bool { return codeMySQL(err) == 1205 },
	taken: func(err error) bool { c := codeMySQL(err); return c == 1062 || c == 1586 },
	refused: func(err error) bool {
		// Values, constraints, triggers, rights, and servers that only read.
		return slices.Contains([]int{
			1048, 1062, 1264, 1366, 1364, 1406, 1451, 1452, 1586, 1644, 3819, 4025, 1044, 1142, 1143, 1227, 1370, 1290, 1792, 1836,
		}, codeMySQL(err))
	},
	denied: func(err error) bool { return slices.Contains([]int{1044, 1142, 1143}, codeMySQL(err)) },
	tooLarge: func(err error) bool {
		// A packet, arguments that went over one by one, and what the driver does
		// not even send.
		return codeMySQL(err) == 1153 || codeMySQL(err) == 1105 && strings.Contains(err.Error(), "max_allowed_packet") ||
			strings.Contains(err.Error(), "packet for query is too large")
	},
	prepare: prepareMySQL,
	fits:    fitsMySQL,
	ready:   settingsMySQL,
	least:   map[string][]int{"MariaDB": {10, 6}, "": {8, 0, 19}},
	macros: []string{
		"{now}", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		"{unparked}", `(o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM {parked_keys} k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key))`,
		"{ready:1}", readyMySQL("?1"), "{due:1}", dueMySQL("?1"),
		"{ready:2}", readyMySQL("?2"), "{due:2}", dueMySQL("?2"), // where ?1 are the lanes
		"{many}", "[[, |(#1, #2, #3, #4, #5, #6, #7, #8, #9, #10, #11, #12, #13, #14, #15, #16, #17, #18, #19, #20, #21, #22, #23)]]",
		"{one}", "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23",
		"{state}", "attempts, last_error, first_failed_at, retry_at, claim_token, claim_until",
		"{o.state}", "o.attempts, o.last_error, o.first_failed_at, o.retry_at, o.claim_token, o.claim_until",
		"{d.state}", "d.attempts, d.last_error, d.first_failed_at, d.retry_at, d.claim_token, d.claim_until",
		"{claimed}", "CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > {now} THEN 1 ELSE 0 END",
		"{due_at}", "GREATEST(COALESCE(o.deliver_at, 0), COALESCE(o.retry_at, 0))",
		// A look without a lock: who writes would wait for a row that another
		// transaction has just inserted, and not committed.
		"{claim hot}", "SELECT o.pos FROM {claimed hot}", "{claim deferred}", "SELECT o.pos FROM {claimed deferred}",
		"{claimed hot}", `{every_lane} STRAIGHT_JOIN {outbox} o FORCE INDEX (PRIMARY) ON o.lane = l.lane AND o.id = ?2
 WHERE o.claim_token = ?3 AND o.claim_until > ?1`,
		"{claimed deferred}", `{every_lane} STRAIGHT_JOIN {deferred} o FORCE INDEX (PRIMARY) ON o.lane = l.lane AND o.id = ?2
 WHERE o.claim_token = ?3 AND o.claim_until > ?1`,
		"{forgotten}", "{relays} g WHERE g.expires_at < ?1 AND NOT EXISTS (SELECT 1 FROM {lanes} l WHERE l.owner = g.owner)",
		// Materialized, so that it is not locked with the rows.
		"{every_lane}", "(SELECT DISTINCT lane FROM {lanes}) l",
		"{lock}", "CONCAT('postrider ', ?1, COALESCE(LEFT(SHA2(LOWER({schema}), 256), 32), ''))", // at most 64 characters
		"{u:lane}", rowsMySQL("lane"),
		"{u:lane+epoch}", rowsMySQL("lane", "epoch"),
		"{u:lane+pos}", rowsMySQL("lane", "pos"),
		"{u:lane+id}", rowsMySQL("lane", "#id"),
		"{u:id}", rowsMySQL("#id"),
		"{u:row}", rowsMySQL("lane", "pos", "#id"),
		"{u:fail}", rowsMySQL("lane", "#id", "attempts", "$reason", "retry_at"),
		"{u:bury}", rowsMySQL("lane", "#id", "attempts", "$reason"),
		"{u:owner}", rowsMySQL("#owner"),
		"{u:config}", rowsMySQL("lane", "config"),
		"{u:defer}", rowsMySQL("lane", "#id", "aside"),
		"{u:key}", rowsMySQL("lane", "key_hash", "#ordering_key"),
		"{u:park}", rowsMySQL("lane", "key_hash", "#ordering_key", "$why"),
		"{u:lifted}", `{u:key} STRAIGHT_JOIN {parked_keys} FORCE INDEX (PRIMARY)
    ON {parked_keys}.lane = u.lane AND {parked_keys}.key_hash = u.key_hash AND {parked_keys}.ordering_key = u.ordering_key
 WHERE {parked_keys}.unparking <> 0
   AND NOT EXISTS (SELECT 1 FROM {deferred} o FORCE INDEX ({=deferred_parked}) WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key AND o.due_at IS NULL)`,
		"{erase}", `DELETE {outbox} FROM {u:row} STRAIGHT_JOIN {outbox} FORCE INDEX ({=outbox_lane})
    ON {outbox}.lane = u.lane AND {outbox}.pos = u.pos AND {outbox}.id = u.id`,
		"{dead row}", `pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers,
    CASE WHEN ?3 <> 0 THEN NULL ELSE body END,
    deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions,
    correlation_id, causation_id, traceparent, tracestate, attempts, last_error, NULL, first_failed_at, reason, died_at, later_out`,
	},
	texts: texts{
		Version: `SELECT CONCAT_WS(' ', VERSION(), @@version_comment, CASE WHEN {schema} IS NULL THEN '` + noSchema + `' WHEN DATABASE() IS NULL THEN '` + noDatabase + `' END)`,
		Unfit: `SELECT table_name, engine FROM information_schema.tables WHERE table_schema = {schema} AND engine <> 'InnoDB'
   AND table_name IN (` + eachTable("{~%s}", ", ") + `)`,
		Absent: `SELECT t.name FROM (` + eachTable("SELECT '%s' AS name, {~%[1]s} AS place", " UNION ALL ") + `) t
 WHERE NOT EXISTS (SELECT 1 FROM information_schema.tables m WHERE m.table_schema = {schema} AND m.table_name = t.place)`,
		Foreign: `SELECT t.place FROM (` + signsMySQL() + `) t
 WHERE EXISTS (SELECT 1 FROM information_schema.tables m WHERE m.table_schema = {schema} AND m.table_name = t.place)
   AND NOT EXISTS (SELECT 1 FROM information_schema.columns c WHERE c.table_schema = {schema} AND c.table_name = t.place AND c.column_name = t.sign)`,
		ReadOnly:  `SELECT CASE WHEN CONCAT(@@global.read_only) IN ('0', 'OFF') AND @@global.innodb_read_only = 0 THEN 0 ELSE 1 END`,
		TryRights: rightsMySQL(),
		Whom: "SELECT CONCAT('''', LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)) - 1), '''@''', " +
			"SUBSTRING_INDEX(CURRENT_USER(), '@', -1), ''''), CONCAT('`', DATABASE(), '`')",
		HasMeta:   `SELECT count(*) FROM information_schema.tables WHERE table_schema = {schema} AND table_name = {~meta}`,
		HasSchema: `SELECT count(*) FROM information_schema.schemata WHERE schema_name = ?1`,
		Lock:      `SELECT GET_LOCK({lock}, 600)`,
		Unlock:    `SELECT RELEASE_LOCK({lock})`,
		Meta:      `SELECT name, value FROM {meta}`,
		Routes:    `SELECT name, first_lane, ordered_lanes, unordered_lanes FROM {routes} ORDER BY first_lane`,
		AddRoute:  `INSERT INTO {routes} (name, first_lane, ordered_lanes, unordered_lanes) VALUES (?1, ?2, ?3, ?4)`,
		AddLanes:  `INSERT INTO {lanes} (lane, is_ordered, route) VALUES [[, |(#1, #2, ?2)]]`,
		AddMarks:  `INSERT INTO {lane_marks} (lane) VALUES [[, |(#1)]]`,
		Now:       `SELECT {now}`,

		QueueOne:  `INSERT INTO {outbox} ({msg}) VALUES ({one})`,
		QueueMany: `INSERT INTO {outbox} ({msg}) VALUES {many}`,
		DeferOne:  `INSERT INTO {deferred} ({msg}, due_at) VALUES ({one}, ?11)`,
		DeferMany: `INSERT INTO {deferred} ({msg}, due_at) VALUES [[, |(#1, #2, #3, #4, #5, #6, #7, #8, #9, #10, #11, #12, #13, #14, #15, #16, #17, #18, #19, #20, #21, #22, #23, #11)]]`,
		UnlistHot: `DELETE {outbox} FROM {u:lane+id} STRAIGHT_JOIN {outbox} FORCE INDEX (PRIMARY) ON {outbox}.lane = u.lane AND {outbox}.id = u.id`,
		PendingIDs: `SELECT u.id FROM {u:id}
 WHERE EXISTS (SELECT 1 FROM {lanes} l STRAIGHT_JOIN {outbox} p FORCE INDEX (PRIMARY) ON p.lane = l.lane AND p.id = u.id WHERE JSON_CONTAINS(?2, CAST(l.lane AS CHAR)))
    OR EXISTS (SELECT 1 FROM {lanes} l STRAIGHT_JOIN {deferred} p ON p.lane = l.lane AND p.id = u.id WHERE JSON_CONTAINS(?2, CAST(l.lane AS CHAR)))`,

		ReadLane: limited{`SELECT {o.row} FROM (
  (SELECT {o.row} FROM {outbox} o FORCE INDEX (PRIMARY) WHERE o.lane = ?2 AND o.id > ?3 AND o.key_hash IS NOT NULL
    AND {ready:1} ORDER BY o.lane, o.id LIMIT {LIMIT})
  UNION ALL
  (SELECT {o.row} FROM {deferred} o FORCE INDEX (PRIMARY) WHERE o.lane = ?2 AND o.id > ?3 AND o.key_hash IS NOT NULL
    AND {due:1} ORDER BY o.lane, o.id LIMIT {LIMIT})) o
 ORDER BY o.id LIMIT {LIMIT}`},
		ReadUnordered: limited{`SELECT {o.row} FROM ([[
  UNION ALL |
  (SELECT {o.row} FROM {outbox} o FORCE INDEX (PRIMARY) WHERE o.lane = #1 AND o.id > ?3
    AND {ready:2} ORDER BY o.lane, o.id LIMIT {LIMIT})
  UNION ALL
  (SELECT {o.row} FROM {deferred} o FORCE INDEX (PRIMARY) WHERE o.lane = #1 AND o.id > ?3
    AND {due:2} ORDER BY o.lane, o.id LIMIT {LIMIT})]]) o
 ORDER BY o.id LIMIT {LIMIT}`},
		FindPending: `SELECT o.lane FROM {lanes} l STRAIGHT_JOIN {outbox} o FORCE INDEX (PRIMARY) ON o.lane = l.lane AND o.id = ?1
UNION ALL SELECT o.lane FROM {lanes} l STRAIGHT_JOIN {deferred} o ON o.lane = l.lane AND o.id = ?1`,
		LockLane:  `SELECT owner FROM {lanes} WHERE lane = ?1 LOCK IN SHARE MODE`,
		LockRelay: `SELECT CASE WHEN ended = 0 AND expires_at > {now} THEN 1 ELSE 0 END FROM {relays} WHERE owner = ?1 LOCK IN SHARE MODE`,
		// The rows are counted as they are locked: how many an update has changed
		// depends on the driver's settings, and on what they held.
		ClaimHot: `> SELECT o.pos FROM {outbox} o FORCE INDEX (PRIMARY) WHERE o.lane = ?2 AND o.id = ?3
    AND {ready:1} FOR UPDATE
;; UPDATE {outbox} SET claim_token = ?4, claim_until = ?5 WHERE lane = ?2 AND id = ?3`,
		ClaimDeferred: `> SELECT o.pos FROM {deferred} o FORCE INDEX (PRIMARY) WHERE o.lane = ?2 AND o.id = ?3
    AND {due:1} FOR UPDATE
;; UPDATE {deferred} SET claim_token = ?4, claim_until = ?5 WHERE lane = ?2 AND id = ?3`,
		RenewHot: `if {claim hot}
;; > SELECT o.pos FROM {claimed hot} FOR UPDATE
;; UPDATE {every_lane} STRAIGHT_JOIN {outbox} o FORCE INDEX (PRIMARY) ON o.lane = l.lane AND o.id = ?2
   SET o.claim_until = GREATEST(o.claim_until, ?4) WHERE o.claim_token = ?3 AND o.claim_until > ?1`,
		RenewDeferred: `if {claim deferred}
;; > SELECT o.pos FROM {claimed deferred} FOR UPDATE
;; UPDATE {every_lane} STRAIGHT_JOIN {deferred} o FORCE INDEX (PRIMARY) ON o.lane = l.lane AND o.id = ?2
   SET o.claim_until = GREATEST(o.claim_until, ?4) WHERE o.claim_token = ?3 AND o.claim_until > ?1`,
		DoneHot: `if {claim hot}
;; DELETE {outbox} FROM {every_lane} STRAIGHT_JOIN {outbox} FORCE INDEX (PRIMARY) ON {outbox}.lane = l.lane AND {outbox}.id = ?2
 WHERE {outbox}.claim_token = ?3 AND {outbox}.claim_until > ?1`,
		DoneDeferred: `if {claim deferred}
;; DELETE {deferred} FROM {every_lane} STRAIGHT_JOIN {deferred} FORCE INDEX (PRIMARY) ON {deferred}.lane = l.lane AND {deferred}.id = ?2
 WHERE {deferred}.claim_token = ?3 AND {deferred}.claim_until > ?1`,
		ClaimedHot: `if {claim hot}
;; > SELECT o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END FROM {claimed hot} FOR UPDATE`,
		ClaimedDeferred: `if {claim deferred}
;; > SELECT o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END FROM {claimed deferred} FOR UPDATE`,
		UnclaimHot:      `UPDATE {outbox} SET claim_token = NULL, claim_until = NULL WHERE lane = ?1 AND id = ?2`,
		UnclaimDeferred: `UPDATE {deferred} SET claim_token = NULL, claim_until = NULL WHERE lane = ?1 AND id = ?2`,
		CountHot: `SELECT count(*), min(o.created_at) FROM {outbox} o WHERE o.lane BETWEEN ?2 AND ?3
    AND {ready:1}`,
		CountDeferred: `SELECT count(*), min(o.created_at) FROM {deferred} o WHERE o.lane BETWEEN ?2 AND ?3
    AND {due:1}`,
		Oldest: `SELECT min(x.created_at) FROM ([[
  UNION ALL |
  (SELECT o.created_at FROM {outbox} o FORCE INDEX ({=outbox_lane}) WHERE o.lane = #1
    AND {ready:2} ORDER BY o.lane, o.pos LIMIT 128)
  UNION ALL
  (SELECT o.created_at FROM {deferred} o FORCE INDEX ({=deferred_due}) WHERE o.lane = #1
    AND {due:2} ORDER BY o.lane, o.due_at, o.num LIMIT 128)]]) x`,

		LiveRelays: `SELECT owner, routes, expires_at, {now} FROM {relays} WHERE ended = 0 AND expires_at > {now}`,
		HeldLanes:  `SELECT lane FROM {lanes} WHERE owner = ?1`,
		LockLanes: `SELECT l.lane FROM {u:lane+epoch} STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = u.lane AND l.epoch = u.epoch
 WHERE l.owner = ?2 ORDER BY l.lane FOR UPDATE`,
		LockOwned: `SELECT l.lane FROM (SELECT DISTINCT lane FROM {lanes} WHERE owner = ?1) u STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = u.lane
 WHERE l.owner = ?1 ORDER BY l.lane FOR UPDATE`,
		Candidates: `SELECT l.lane, l.owner, CASE WHEN EXISTS (SELECT 1 FROM {relays} r WHERE r.owner = l.owner) THEN 1 ELSE 0 END
  FROM {lanes} l FORCE INDEX (PRIMARY)
 WHERE l.lane BETWEEN ?1 AND ?2
   AND NOT EXISTS (SELECT 1 FROM {relays} r WHERE r.owner = l.owner AND r.ended = 0 AND r.expires_at > {now})
 ORDER BY l.lane LIMIT ?3 FOR UPDATE SKIP LOCKED`,
		LockOwner: `SELECT expires_at, ended FROM {relays} WHERE owner = ?1 FOR UPDATE`,
		Owners:    `SELECT r.owner FROM {u:owner} STRAIGHT_JOIN {relays} r ON r.owner = u.owner`,
		LockOwners: `SELECT r.owner, r.expires_at, r.ended FROM {u:owner} STRAIGHT_JOIN {relays} r FORCE INDEX (PRIMARY) ON r.owner = u.owner
 ORDER BY r.owner FOR UPDATE SKIP LOCKED`,
		AddRelay:   `INSERT INTO {relays} (owner, expires_at, routes, ended) VALUES (?1, ?2, ?3, ?4)`,
		RenewRelay: `UPDATE {relays} SET expires_at = GREATEST(expires_at, ?2), routes = ?3, ended = ?4 WHERE owner = ?1`,
		EndRelays:  `UPDATE {u:owner} STRAIGHT_JOIN {relays} r FORCE INDEX (PRIMARY) ON r.owner = u.owner SET r.ended = 1`,
		ReleaseLanes: `UPDATE {u:lane} STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = u.lane SET l.owner = NULL, l.unclean = 0
 WHERE l.owner = ?2`,
		TakeLanes: `UPDATE {u:lane} STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = u.lane SET l.unclean = CASE WHEN l.owner IS NULL THEN 0 ELSE 1 END
;; UPDATE {u:lane} STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = u.lane SET l.owner = ?2, l.epoch = l.epoch + 1`,
		Leases: `SELECT l.lane, l.route, l.epoch, l.config, l.unclean, m.tried_to,
  CASE WHEN (SELECT d.key_hash FROM {dead} d FORCE INDEX ({=dead_key}) WHERE d.lane = l.lane ORDER BY d.lane DESC, d.key_hash DESC LIMIT 1) IS NULL THEN 0 ELSE 1 END
  FROM {lanes} l JOIN {lane_marks} m ON m.lane = l.lane
 WHERE l.owner = ?1 ORDER BY l.lane`,
		// The look does not lock; the delete locks all that it reads.
		ForgetRelays: `if SELECT 1 FROM {forgotten} LIMIT 1
;; DELETE {relays} FROM (SELECT DISTINCT g.owner FROM {forgotten}) u STRAIGHT_JOIN {relays} FORCE INDEX (PRIMARY) ON {relays}.owner = u.owner`,

		Fence: `SELECT l.lane, l.config FROM {u:lane+epoch} STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = u.lane AND l.epoch = u.epoch
 WHERE l.owner = ?2 ORDER BY l.lane LOCK IN SHARE MODE`,
		ReadRanges: limited{`[[
UNION ALL |
(SELECT #0, {o.lean row}, {claimed}, NULL, NULL, {withheld}
  FROM {outbox} o FORCE INDEX ({=outbox_lane}) WHERE o.lane = #1 AND o.pos > #2 AND o.pos <= #3 ORDER BY o.pos LIMIT {LIMIT})]]`},
		SweepRanges: limited{`[[
UNION ALL |
(SELECT #0, o.lane, o.pos, o.id, o.key_hash, COALESCE(OCTET_LENGTH(o.body), 0)
  FROM {outbox} o FORCE INDEX ({=outbox_lane}) WHERE o.lane = #1 AND o.pos > #2 AND o.pos <= #3 ORDER BY o.pos LIMIT {LIMIT})]]`},
		ReadKeys: limited{`[[
UNION ALL |
(SELECT #0, {o.lean row}, {claimed}, NULL, NULL, {withheld}
  FROM {outbox} o FORCE INDEX ({=outbox_key}) WHERE o.lane = #1 AND o.key_hash = #4 AND o.ordering_key = #5 AND o.pos > #2 AND o.pos <= #3
 ORDER BY o.pos LIMIT {LIMIT})
UNION ALL
(SELECT #0, {o.lean row}, {claimed}, NULL, NULL, {withheld}
  FROM {outbox} o FORCE INDEX ({=outbox_lane}) WHERE #4 IS NULL AND o.lane = #1 AND o.pos > #2 AND o.pos <= #3
 ORDER BY o.pos LIMIT {LIMIT})]]`},
		// From the cursor downwards: a sub-select of the read would pass over all rows
		// of the key above it.
		KeyPrevs: `[[
UNION ALL |
(SELECT #1, x.key_hash, p.ordering_key, x.pos
  FROM (SELECT k.lane, k.key_hash, MAX(k.pos) AS pos FROM {outbox} k FORCE INDEX ({=outbox_key})
         WHERE k.lane = #2 AND k.key_hash IN (#3..) AND k.pos <= #4 GROUP BY k.lane, k.key_hash) x
  STRAIGHT_JOIN {outbox} p FORCE INDEX ({=outbox_lane}) ON p.lane = x.lane AND p.pos = x.pos)]]`,
		KeysAbove: `SELECT k.lane, k.key_hash, k.pos FROM {outbox} k FORCE INDEX ({=outbox_key})
 WHERE [[ OR |k.lane = #2 AND k.pos > #3 AND k.pos <= #4 AND k.key_hash IN (#5..)]]`,
		// Ranges that are empty as a rule. Downwards from the cursor there would be all
		// that the key has delivered, for as long as an old snapshot keeps purge away.
		KeyPrevsAbove: `SELECT k.lane, k.key_hash, k.ordering_key, k.pos FROM {outbox} k FORCE INDEX ({=outbox_key})
 WHERE [[ OR |k.lane = #1 AND k.key_hash = #2 AND k.pos > #3 AND k.pos <= #4]]`,
		BodyPart: `SELECT SUBSTRING(o.body, ?4, ?5) FROM {outbox} o WHERE o.lane = ?1 AND o.pos = ?2 AND o.id = ?3`,
		// Where the rows are not all there they are found by their positions: a producer
		// may have enlisted the id of one that is gone again, and not committed. At
		// first by the primary key, which is one look for each; a join would be two.
		SettleAll: `DELETE {outbox} FROM {outbox} FORCE INDEX (PRIMARY) WHERE [[
   OR |({outbox}.lane = #1 AND {outbox}.id IN (#3..) AND {outbox}.id = ELT(FIELD({outbox}.pos, #2..), #3..))]]`,
		Settle: `> SELECT o.id FROM {u:row} STRAIGHT_JOIN {outbox} o FORCE INDEX ({=outbox_lane}) ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id FOR UPDATE
;; {erase}`,
		SettleKeys: `> SELECT o.id, o.key_hash, o.ordering_key
  FROM {u:row} STRAIGHT_JOIN {outbox} o FORCE INDEX ({=outbox_lane}) ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id FOR UPDATE
;; {erase}`,
		// EXISTS may become a join, which reads all letters.
		Lettered: `SELECT u.lane, u.key_hash FROM ` + rowsMySQL("lane", "key_hash") + `
 WHERE (SELECT 1 FROM {dead} d FORCE INDEX ({=dead_key}) WHERE d.lane = u.lane AND d.key_hash = u.key_hash LIMIT 1) IS NOT NULL`,
		LettersFrom: `[[
UNION ALL |
(SELECT d.lane, d.key_hash, d.pos FROM {dead} d FORCE INDEX ({=dead_key}) WHERE d.lane = #1 AND d.key_hash = #2 AND d.pos < #3 ORDER BY d.pos DESC LIMIT 1 OFFSET 1023)]]`,
		// A join with the ranges would read all letters of the key for each.
		CountLater: `UPDATE ([[
  UNION ALL |
  (SELECT o.id, #6 AS more FROM {dead} o FORCE INDEX ({=dead_key}) WHERE o.lane = #1 AND o.key_hash = #2 AND o.pos >= #4 AND o.pos < #5 AND o.ordering_key = #3)]]) x
  STRAIGHT_JOIN {dead} d FORCE INDEX (PRIMARY) ON d.id = x.id
   SET d.later_out = d.later_out + x.more`,
		FindHot: `SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM {u:row} STRAIGHT_JOIN {outbox} o FORCE INDEX ({=outbox_lane}) ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id FOR UPDATE`,
		// The same of those aside: what is not committed is not among v.
		FindDeferred: `SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM (SELECT DISTINCT u.lane, u.id FROM {u:row} STRAIGHT_JOIN {deferred} p FORCE INDEX (PRIMARY) ON p.lane = u.lane AND p.id = u.id AND p.pos = u.pos) v
  STRAIGHT_JOIN {deferred} o FORCE INDEX (PRIMARY) ON o.lane = v.lane AND o.id = v.id FOR UPDATE`,
		DropDeferred: `DELETE {deferred} FROM {u:lane+id} STRAIGHT_JOIN {deferred} FORCE INDEX (PRIMARY) ON {deferred}.lane = u.lane AND {deferred}.id = u.id`,
		FailHot: `UPDATE {u:fail} STRAIGHT_JOIN {outbox} o FORCE INDEX (PRIMARY) ON o.lane = u.lane AND o.id = u.id
   SET o.attempts = u.attempts, o.last_error = u.reason, o.retry_at = u.retry_at, o.first_failed_at = COALESCE(o.first_failed_at, {now})`,
		FailDeferred: `UPDATE {u:fail} STRAIGHT_JOIN {deferred} o FORCE INDEX (PRIMARY) ON o.lane = u.lane AND o.id = u.id
   SET o.attempts = u.attempts, o.last_error = u.reason, o.retry_at = u.retry_at, o.first_failed_at = COALESCE(o.first_failed_at, {now}),
       o.due_at = CASE WHEN o.due_at IS NULL THEN NULL ELSE GREATEST(COALESCE(o.deliver_at, 0), COALESCE(u.retry_at, 0)) END`,
		Defer: `> SELECT o.lane, o.id FROM {u:defer} STRAIGHT_JOIN {outbox} o FORCE INDEX (PRIMARY) ON o.lane = u.lane AND o.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM {deferred} p WHERE p.lane = o.lane AND p.id = o.id) FOR UPDATE
;; INSERT INTO {deferred} (pos, {msg}, {state}, due_at)
SELECT o.pos, {o.msg}, {o.state}, CASE WHEN u.aside <> 0 THEN NULL ELSE {due_at} END
  FROM {u:defer} STRAIGHT_JOIN {outbox} o FORCE INDEX (PRIMARY) ON o.lane = u.lane AND o.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM {deferred} p WHERE p.lane = o.lane AND p.id = o.id)`,
		BuryHot: `INSERT INTO {dead} (pos, {msg}, attempts, last_error, first_failed_at, reason, died_at)
SELECT o.pos, {o.msg}, u.attempts, u.reason, o.first_failed_at, u.reason, {now}
  FROM {u:bury} STRAIGHT_JOIN {outbox} o FORCE INDEX (PRIMARY) ON o.lane = u.lane AND o.id = u.id`,
		BuryDeferred: `INSERT INTO {dead} (pos, {msg}, attempts, last_error, first_failed_at, reason, died_at)
SELECT o.pos, {o.msg}, u.attempts, u.reason, o.first_failed_at, u.reason, {now}
  FROM {u:bury} STRAIGHT_JOIN {deferred} o FORCE INDEX (PRIMARY) ON o.lane = u.lane AND o.id = u.id`,
		DropDead: `DELETE {dead} FROM {u:id} STRAIGHT_JOIN {dead} FORCE INDEX (PRIMARY) ON {dead}.id = u.id`,
		Marks:    `UPDATE {u:lane+pos} STRAIGHT_JOIN {lane_marks} k FORCE INDEX (PRIMARY) ON k.lane = u.lane AND k.tried_to < u.pos SET k.tried_to = u.pos`,
		// Locked: of two promotions at once, the second would take a row that the first
		// has moved for one that is ready already.
		Due: limited{`SELECT o.lane, o.id, o.ordering_key FROM ([[
  UNION ALL |
  (SELECT #0 AS ord, o.lane, o.id, o.due_at, o.num FROM {deferred} o FORCE INDEX ({=deferred_due})
    WHERE o.lane = #1 AND o.due_at <= {now} AND (o.claim_until IS NULL OR o.claim_until <= {now}) ORDER BY o.lane, o.due_at, o.num LIMIT {LIMIT})]]) x
  STRAIGHT_JOIN {deferred} o FORCE INDEX (PRIMARY) ON o.lane = x.lane AND o.id = x.id
 WHERE o.due_at <= {now} AND (o.claim_until IS NULL OR o.claim_until <= {now})
 ORDER BY x.ord, x.due_at, x.num LIMIT ?2 FOR UPDATE SKIP LOCKED`},
		// A row whose id is ready already goes first: the others are told from it by
		// being deferred still.
		Promote: `DELETE {deferred} FROM {u:lane+id} STRAIGHT_JOIN {outbox} o FORCE INDEX (PRIMARY) ON o.lane = u.lane AND o.id = u.id
  STRAIGHT_JOIN {deferred} FORCE INDEX (PRIMARY) ON {deferred}.lane = u.lane AND {deferred}.id = u.id
;; INSERT INTO {outbox} ({msg}, {state})
SELECT {d.msg}, {d.state} FROM {u:lane+id} STRAIGHT_JOIN {deferred} d FORCE INDEX (PRIMARY) ON d.lane = u.lane AND d.id = u.id ORDER BY u.ord
;; > SELECT {o.row} FROM {u:lane+id} STRAIGHT_JOIN {deferred} d FORCE INDEX (PRIMARY) ON d.lane = u.lane AND d.id = u.id
  STRAIGHT_JOIN {outbox} o FORCE INDEX (PRIMARY) ON o.lane = d.lane AND o.id = d.id`,
		NextDue: `SELECT min(x.due_at) FROM ([[
  UNION ALL |
  (SELECT o.due_at FROM {deferred} o FORCE INDEX ({=deferred_due}) WHERE o.lane = #1 AND o.due_at IS NOT NULL
      AND (o.claim_until IS NULL OR o.claim_until <= GREATEST({now}, o.due_at))
    ORDER BY o.lane, o.due_at, o.num LIMIT 1)]]) x`,
		NextClaimed: `SELECT min(x.claim_until) FROM ([[
  UNION ALL |
  (SELECT o.claim_until FROM {deferred} o FORCE INDEX ({=deferred_due}) WHERE o.lane = #1 AND o.due_at <= {now}
    ORDER BY o.lane, o.due_at, o.num LIMIT 1024)]]) x
 WHERE x.claim_until > {now}`,

		Park: `UPDATE {u:park} STRAIGHT_JOIN {parked_keys} k FORCE INDEX (PRIMARY) ON k.lane = u.lane AND k.key_hash = u.key_hash AND k.ordering_key = u.ordering_key AND k.unparking <> 0
   SET k.unparking = 0, k.why = u.why, k.parked_by = ?2, k.parked_at = {now}
;; INSERT INTO {parked_keys} (lane, key_hash, ordering_key, why, parked_by, parked_at)
SELECT u.lane, u.key_hash, u.ordering_key, u.why, ?2, {now} FROM {u:park}
 WHERE NOT EXISTS (SELECT 1 FROM {parked_keys} k WHERE k.lane = u.lane AND k.key_hash = u.key_hash AND k.ordering_key = u.ordering_key)`,
		Unpark: `UPDATE {parked_keys} SET unparking = 1 WHERE lane = ?1 AND key_hash = ?2 AND ordering_key = ?3 AND unparking = 0`,
		Lift: `> SELECT {parked_keys}.lane, {parked_keys}.ordering_key FROM {u:lifted} FOR UPDATE
;; DELETE {parked_keys} FROM {u:lifted}`,
		Parked: `SELECT lane, key_hash, ordering_key, unparking, parked_by, parked_at, why FROM {parked_keys}`,
		ParkedRows: limited{`SELECT x.lane, x.id FROM ([[
  UNION ALL |
  (SELECT o.lane, o.id FROM {outbox} o FORCE INDEX ({=outbox_key}) WHERE o.lane = #1 AND o.key_hash = #2 AND o.ordering_key = #3
    ORDER BY o.pos LIMIT {LIMIT})]]) x
 LIMIT ?2`},
		AsideRows: limited{`SELECT x.lane, x.id FROM ([[
  UNION ALL |
  (SELECT o.lane, o.id FROM {deferred} o FORCE INDEX ({=deferred_parked}) WHERE o.lane = #1 AND o.key_hash = #2 AND o.ordering_key = #3 AND o.due_at IS NULL
    ORDER BY o.pos LIMIT {LIMIT})]]) x
 LIMIT ?2`},
		Return: `INSERT INTO {outbox} (pos, {msg}, {state})
SELECT CASE WHEN EXISTS (SELECT 1 FROM {outbox} p FORCE INDEX ({=outbox_lane}) WHERE p.lane = d.lane AND p.pos = d.pos) THEN NULL ELSE d.pos END, {d.msg}, {d.state}
  FROM {u:lane+id} STRAIGHT_JOIN {deferred} d FORCE INDEX (PRIMARY) ON d.lane = u.lane AND d.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM {outbox} p WHERE p.lane = d.lane AND p.id = d.id) ORDER BY d.lane, d.pos`,
		SeenConfig:  `UPDATE {u:config} STRAIGHT_JOIN {lane_marks} k FORCE INDEX (PRIMARY) ON k.lane = u.lane AND k.config_seen < u.config SET k.config_seen = u.config`,
		RaiseConfig: `UPDATE {u:lane} STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = u.lane SET l.config = l.config + 1`,
		CountAside:  `SELECT count(*) FROM {deferred} WHERE lane BETWEEN ?1 AND ?2`,
		CountParked: `SELECT count(*) FROM {parked_keys} WHERE lane BETWEEN ?1 AND ?2`,
		Audit:       `INSERT INTO {audit} (at, done_by, what, how_many, detail) VALUES ({now}, ?1, ?2, ?3, ?4)`,
		LaneOwners:  `SELECT lane, owner FROM {lanes} WHERE owner IS NOT NULL`,
		// Left to itself MariaDB takes the index by the route alone, and passes over all
		// letters before the cursor.
		ListDead: limited{`SELECT {dead row}
  FROM {dead} FORCE INDEX ({=dead_time}) WHERE died_at >= ?1 AND (died_at > ?1 OR id > ?2) ORDER BY died_at, id LIMIT {LIMIT}`},
		ListDeadOf: limited{`SELECT {dead row}
  FROM {dead} FORCE INDEX ({=dead_route}) WHERE transport = ?4 AND died_at >= ?1 AND (died_at > ?1 OR id > ?2) ORDER BY died_at, id LIMIT {LIMIT}`},
		CountDead:   `SELECT count(*) FROM {dead}`,
		CountDeadOf: `SELECT count(*) FROM {dead} WHERE transport = ?1`,
		Confirmed: `SELECT count(*) FROM {u:lane} STRAIGHT_JOIN {lanes} l ON l.lane = u.lane
  JOIN {lane_marks} m ON m.lane = l.lane JOIN {relays} r ON r.owner = l.owner
 WHERE m.config_seen < l.config AND r.ended = 0 AND r.expires_at > {now}`,
		LanesOfDead: `SELECT d.lane FROM {u:id} STRAIGHT_JOIN {dead} d ON d.id = u.id`,
		LockDead:    `SELECT d.id, d.lane, d.transport, d.ordering_key, d.later_out FROM {u:id} STRAIGHT_JOIN {dead} d FORCE INDEX (PRIMARY) ON d.id = u.id FOR UPDATE`,
		Replay: `> SELECT d.id FROM {u:id} STRAIGHT_JOIN {dead} d FORCE INDEX (PRIMARY) ON d.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM {outbox} p WHERE p.lane = d.lane AND p.id = d.id) FOR UPDATE
;; INSERT INTO {outbox} (pos, {msg})
SELECT CASE WHEN d.pos = 0 OR EXISTS (SELECT 1 FROM {outbox} p FORCE INDEX ({=outbox_lane}) WHERE p.lane = d.lane AND p.pos = d.pos) THEN NULL ELSE d.pos END, {d.msg}
  FROM {u:id} STRAIGHT_JOIN {dead} d FORCE INDEX (PRIMARY) ON d.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM {outbox} p WHERE p.lane = d.lane AND p.id = d.id) ORDER BY d.lane, d.pos`,

		// In one statement: it takes the row for itself, so that many who deliver one
		// message queue for it. Only if the one they wait for is rolled back, and the
		// row with it, the engine ends most of them in deadlocks.
		Reserve: `INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at) VALUES (?1, ?2, ?3, ?4)
ON DUPLICATE KEY UPDATE repeats = CASE WHEN expires_at <= ?3 THEN 0 ELSE repeats + 1 END,
   processed_at = CASE WHEN expires_at <= ?3 THEN ?3 ELSE processed_at END,
   token = CASE WHEN expires_at <= ?3 THEN NULL ELSE token END,
   expires_at = CASE WHEN expires_at <= ?3 THEN ?4 ELSE expires_at END
;; > SELECT 1 FROM {inbox} WHERE consumer = ?1 AND message_id = ?2 AND repeats = 0`,
		Processed: `SELECT count(*) FROM {inbox} WHERE consumer = ?2 AND message_id = ?3 AND token IS NULL AND (expires_at IS NULL OR expires_at > ?1)`,
		MarkInbox: `INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at) VALUES (?1, ?2, ?3, ?4)
ON DUPLICATE KEY UPDATE processed_at = ?3, expires_at = ?4, token = NULL`,
		ClaimInbox: `INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at, token) VALUES (?1, ?2, ?3, ?4, ?5)
ON DUPLICATE KEY UPDATE repeats = CASE WHEN expires_at <= ?3 THEN 0 ELSE repeats END,
   processed_at = CASE WHEN expires_at <= ?3 THEN ?3 ELSE processed_at END,
   token = CASE WHEN expires_at <= ?3 THEN ?5 ELSE token END,
   expires_at = CASE WHEN expires_at <= ?3 THEN ?4 ELSE expires_at END`,
		InboxToken: `SELECT token FROM {inbox} WHERE consumer = ?1 AND message_id = ?2`,
		RenewInbox: `> SELECT 1 FROM {inbox} WHERE consumer = ?1 AND message_id = ?2 AND token = ?5 AND expires_at > ?3 FOR UPDATE
;; UPDATE {inbox} SET expires_at = GREATEST(expires_at, ?4) WHERE consumer = ?1 AND message_id = ?2 AND token = ?5`,
		CompleteInbox: `UPDATE {inbox} SET processed_at = ?3, expires_at = ?4, token = NULL
 WHERE consumer = ?1 AND message_id = ?2 AND token = ?5`,
		ReleaseInbox: `DELETE FROM {inbox} WHERE consumer = ?1 AND message_id = ?2 AND token = ?3`,
		// The keys first: a delete along the index would wait for a record whose
		// taker waits for its place in the index.
		PurgeInbox: limited{`SELECT consumer, message_id FROM {inbox} FORCE INDEX ({=inbox_expiry}) WHERE expires_at <= ?1
 ORDER BY expires_at LIMIT {LIMIT} FOR UPDATE SKIP LOCKED`},
		DropInbox: `DELETE {inbox} FROM ` + rowsMySQL("#consumer", "#message_id") + `
  STRAIGHT_JOIN {inbox} FORCE INDEX (PRIMARY) ON {inbox}.consumer = u.consumer AND {inbox}.message_id = u.message_id`,
	},
}

// signsMySQL are the tables, each with a column that hardly another has.
func signsMySQL() string {
	var parts []string
	for _, t := range [...][2]string{
		{"outbox", "key_hash"}, {"deferred", "due_at"}, {"dead", "later_out"}, {"routes", "first_lane"}, {"lanes", "is_ordered"},
		{"lane_marks", "config_seen"}, {"relays", "expires_at"}, {"parked_keys", "unparking"}, {"audit", "how_many"}, {"inbox", "repeats"},
		{"meta", "value"},
	} {
		parts = append(parts, fmt.Sprintf("SELECT {~%s} AS place, '%s' AS sign", t[0], t[1]))
	}
	return strings.Join(parts, " UNION ALL ")
}

func readyMySQL(at string) string {
	return strings.ReplaceAll(`(o.deliver_at IS NULL OR o.deliver_at <= {at}) AND (o.retry_at IS NULL OR o.retry_at <= {at})
    AND (o.claim_until IS NULL OR o.claim_until <= {at}) AND {unparked}`, "{at}", at)
}

func dueMySQL(at string) string {
	return strings.ReplaceAll(`o.due_at <= {at} AND (o.claim_until IS NULL OR o.claim_until <= {at}) AND {unparked}`, "{at}", at)
}

// rowsMySQL is the table u of a JSON list of rows in the first argument, with
// their number from 1 in ord. A name that starts with # is of bytes, one with $
// of text.
func rowsMySQL(columns ...string) string {
	var out, in strings.Builder
	for i, name := range columns {
		expr, kind := "", "BIGINT"
		switch name[0] {
		case '#':
			name = name[1:]
			expr, kind = "UNHEX(j."+name+")", "VARCHAR(2048) CHARACTER SET ascii"
			if name == "id" || name == "owner" {
				kind = "CHAR(32) CHARACTER SET ascii"
			}
		case '$':
			name, kind = name[1:], "TEXT CHARACTER SET utf8mb4"
		}
		if expr == "" {
			expr = "j." + name
		}
		out.WriteString(expr + " AS " + name + ", ")
		in.WriteString(", " + name + " " + kind + " PATH '$[" + strconv.Itoa(i) + "]'")
	}
	return "(SELECT " + out.String() + "j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY" + in.String() + ")) j) u"
}

// codeMySQL is the number of the server's error, 0 if it is none. The driver
// has no method for it: "Error 1213 (40001): Deadlock found".
func codeMySQL(err error) int {
	if err == nil {
		return 0
	}
	_, rest, ok := strings.Cut(err.Error(), "Error ")
	if !ok {
		return 0
	}
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	n, _ := strconv.Atoi(digits)
	return n
}

// rightsMySQL asks how statements would run: that takes the rights to run them, of
// which each takes one.
func rightsMySQL() string {
	var list []string
	for _, t := range [][2]string{{"outbox", "attempts"}, {"deferred", "attempts"}, {"dead", "later_out"}, {"relays", "ended"}, {"parked_keys", "unparking"}} {
		list = append(list,
			fmt.Sprintf("EXPLAIN SELECT * FROM {%s} WHERE 1 = 0", t[0]),
			fmt.Sprintf("EXPLAIN INSERT INTO {%s} (%s) VALUES (0)", t[0], t[1]),
			fmt.Sprintf("EXPLAIN UPDATE {%s} SET %s = 0 WHERE 1 = 0", t[0], t[1]),
			fmt.Sprintf("EXPLAIN DELETE FROM {%s} WHERE 1 = 0", t[0]))
	}
	for _, t := range [][2]string{{"lanes", "epoch"}, {"lane_marks", "tried_to"}} {
		list = append(list, fmt.Sprintf("EXPLAIN SELECT * FROM {%s} WHERE 1 = 0", t[0]), fmt.Sprintf("EXPLAIN UPDATE {%s} SET %s = 0 WHERE 1 = 0", t[0], t[1]))
	}
	list = append(list, "EXPLAIN SELECT * FROM {routes} WHERE 1 = 0", "EXPLAIN SELECT * FROM {meta} WHERE 1 = 0")
	return strings.Join(list, "\n;; ")
}

// What ends the version text of a session without a database: if no schema is
// configured either, and if one is.
const (
	noSchema   = "(no schema)"
	noDatabase = "(no database)"
)

// fitsMySQL refuses a session without a database where one is needed. Without one
// MySQL, and not MariaDB, runs no UPDATE of several tables with a JSON_TABLE, whatever
// names are qualified.
func fitsMySQL(version string) error {
	switch {
	case strings.HasSuffix(version, noSchema):
		return invalid("No database selected, and no schema configured: name a database in the DSN, as user@tcp(host)/database")
	case strings.HasSuffix(version, noDatabase) && !strings.Contains(version, "MariaDB"):
		return invalid("No database selected, and MySQL updates by a list only in a session that has one: name one in the DSN, as user@tcp(host)/database, whether or not a schema is configured")
	}
	return nil
}

// settingsMySQL refuses settings that no statement can be written for. A limit for all
// reads cuts lists of routes and lanes off without a word.
func settingsMySQL(ctx context.Context, c Querier) error {
	var bad textColumn
	err := queryRow(ctx, c, `SELECT CONCAT_WS(', ', CASE WHEN @@sql_safe_updates <> 0 THEN 'sql_safe_updates=0' END,
 CASE WHEN @@sql_select_limit < 18446744073709551615 THEN 'sql_select_limit=18446744073709551615' END,
 CASE WHEN @@completion_type <> 'NO_CHAIN' THEN 'completion_type=NO_CHAIN' END,
 CASE WHEN CONCAT(',', @@sql_mode, ',') LIKE '%,ORACLE,%' THEN 'sql_mode without ORACLE' END,
 CASE WHEN CONCAT(',', @@sql_mode, ',') LIKE '%,EMPTY_STRING_IS_NULL,%' THEN 'sql_mode without EMPTY_STRING_IS_NULL' END)`, nil, &bad)
	if err == nil && bad != "" {
		err = invalid("the settings of the database session do not serve: set in the DSN, or on the server: %s", string(bad))
	}
	return err
}

// prepareMySQL readies a connection for good: what was set before is not known,
// and the connection is thrown away in the end.
func prepareMySQL(ctx context.Context, c Querier, purpose string) (func(context.Context) error, error) {
	wait := 30
	switch purpose {
	case "lease":
		wait = 5
	case settlePurpose:
		wait = 1
	}
	for _, text := range []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
		// MariaDB makes a join of a list of 1,000 values.
		fmt.Sprintf("SET SESSION autocommit = 1, completion_type = 0, sql_safe_updates = 0, sql_select_limit = 18446744073709551615, timestamp = DEFAULT, innodb_lock_wait_timeout = %d /*M!100308 , in_predicate_conversion_threshold = 0 */", wait),
	} {
		if _, err := c.Exec(ctx, text); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
