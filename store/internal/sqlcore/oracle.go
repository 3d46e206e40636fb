package sqlcore

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/store/schema"
)

// Oracle 19c and later, in databases whose character set is AL32UTF8.
//
// The texts are scripts. What is written for many rows is one statement that the
// driver runs with arrays, row after row: so positions are drawn in the order of the
// arguments, and no plan depends on a list. What is looked up for many rows is a list
// in JSON, in parts of 4,000 bytes, for no longer string goes into an expression;
// hints keep the indexes in use, for the optimizer knows nothing of the list, and have
// a sub-select run once, and not for each row.
//
// Rows are not locked shared: who fences a lane keeps it from the others. A
// statement that locks has the limits and joins of its choice in a sub-select,
// where nothing is locked, and looks at its conditions once more.
//
// Values of any length stand alone in VALUES and SET, and last, where the server
// takes them. DUAL, and large objects beside UNION ALL and not UNION, are for
// versions before 23.
var Oracle = &oracleDialect

var oracleDialect = Dialect{
	name:         "Oracle",
	engine:       schema.Oracle,
	begin:        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
	driverBegins: true,
	scripts:      true,
	mark:         ":",
	perLane:      true,
	ddlCommits:   true,
	savepoint:    true,
	valueRows:    1,
	length:       "DBMS_LOB.GETLENGTH",
	here:         "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')",
	rows:         byteRows,
	id:           bytesOf,
	lanes:        func(first, n int64) any { return fmt.Sprintf("[%d,%d]", first, first+n-1) },
	compared:     func(s string) any { return []byte(s) },
	literal:      func(s string) string { return "HEXTORAW('" + hex.EncodeToString([]byte(s)) + "')" },

	missing: func(err error) bool { c := codeOracle(err); return c == 942 || c == 2289 },
	busy: func(err error) bool {
		// Serialization, deadlocks of rows and of the dictionary, locks of tables and
		// rows that were not to be had, a snapshot that is too old, and a statement that
		// was asked to stop: where the context still lives, a break that was meant for an
		// earlier one of the connection.
		return slices.Contains([]int{8177, 60, 4020, 54, 4021, 30006, 1555, 1013}, codeOracle(err))
	},
	taken:  func(err error) bool { return codeOracle(err) == 1 },
	exists: func(err error) bool { return slices.Contains([]int{955, 1, 1408}, codeOracle(err)) },
	refused: func(err error) bool {
		// Values, constraints, triggers, policies, rights, quotas, and databases that
		// only read.
		c := codeOracle(err)
		return c >= 20000 && c <= 20999 || slices.Contains([]int{
			1, 1400, 1407, 1401, 1438, 12899, 2290, 2291, 2292, 1402, 4088, 4098, 28115, 1031, 41900, 1950, 1536, 1456, 16000,
		}, c)
	},
	denied:  func(err error) bool { c := codeOracle(err); return c == 1031 || c == 41900 },
	hides:   true,
	prepare: prepareOracle,
	least:   map[string][]int{"Oracle": {19}},
	fits: func(version string) error {
		if strings.HasSuffix(version, " AL32UTF8") {
			return nil
		}
		return invalid("the database's character set is not AL32UTF8 (%.120q): text of messages would be changed: use a database that has it", version)
	},
	macros: []string{
		"{now}", nowOracle,
		"{every_lane}", "(SELECT l.lane FROM {lanes} l)",
		"{unparked}", `(o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM {parked_keys} k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key))`,
		"{ready:1}", readyMySQL("?1"), "{due:1}", dueMySQL("?1"),
		"{ready:2}", readyMySQL("?2"), "{due:2}", dueMySQL("?2"), // where ?1 are the lanes
		"{columns}", columnsOracle,
		"{one}", valuesOracle("?"), "{many}", valuesOracle("#"),
		"{moved}", movedOracle(""), "{o.moved}", movedOracle("o."), "{d.moved}", movedOracle("d."),
		"{o.held}", "o.pos, " + movedOracle("o.") + ", o.attempts, o.last_error, o.retry_at, o.claim_until",
		"{state}", "attempts, last_error, first_failed_at, retry_at, claim_token, claim_until",
		"{o.state}", "o.attempts, o.last_error, o.first_failed_at, o.retry_at, o.claim_token, o.claim_until",
		"{d.state}", "d.attempts, d.last_error, d.first_failed_at, d.retry_at, d.claim_token, d.claim_until",
		"{o.row}", rowOracle("o.body"),
		"{o.lean row}", rowOracle("CASE WHEN {length} > {large} THEN NULL ELSE o.body END"),
		"{withheld}", "CASE WHEN {length} > {large} THEN {length} END",
		"{length}", "DBMS_LOB.GETLENGTH(o.body)", "{large}", strconv.Itoa(largeBody),
		"{dead row}", strings.NewReplacer("o.body_empty *", "CASE WHEN ?3 <> 0 THEN 0 ELSE o.body_empty END *", "o.retry_at", "CAST(NULL AS NUMBER) AS retry_at").
			Replace(rowOracle("CASE WHEN ?3 <> 0 THEN NULL ELSE o.body END")) + ", o.first_failed_at, o.reason, o.died_at, o.later_out",
		"{claimed}", "CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > {now} THEN 1 ELSE 0 END AS claimed",
		"{due_at}", "GREATEST(COALESCE(o.deliver_at, 0), COALESCE(o.retry_at, 0))",
		// The hash XOR the lane is the code of a key that was seen.
		"{prev}", `CASE WHEN o.key_hash IS NULL OR u.after_pos = 0 THEN NULL ELSE
   (SELECT MAX(p.pos) FROM {outbox} p WHERE p.lane = o.lane AND p.key_hash = o.key_hash AND p.ordering_key = o.ordering_key
       AND p.pos <= u.after_pos AND p.pos > COALESCE(f.pos, 0)) END AS key_prev`,
		"{f}", rowsOracle("f", 2, "code", "lane", "pos") + ` ON f.lane = o.lane AND f.code = o.key_hash + o.lane - 2 * BITAND(o.key_hash, o.lane)`,
		"{r}", `JSON_TABLE(CAST(?2 AS VARCHAR2(4000 BYTE)), '$' COLUMNS (first_lane NUMBER PATH '$[0]', last_lane NUMBER PATH '$[1]')) r`,
		"{u:lane}", rowsOracle("u", 1, "lane"),
		"{u:lane+epoch}", rowsOracle("u", 1, "lane", "epoch"),
		"{u:lane+id}", rowsOracle("u", 1, "lane", "#id"),
		"{u:id}", rowsOracle("u", 1, "#id"),
		"{u:row}", rowsOracle("u", 1, "lane", "pos", "#id"),
		"{u:owner}", rowsOracle("u", 1, "#owner"),
		"{u:key}", rowsOracle("u", 1, "lane", "key_hash", "#ordering_key"),
		"{u:lettered}", rowsOracle("u", 1, "lane", "key_hash"),
		"{u:letters}", rowsOracle("u", 1, "lane", "key_hash", "below"),
		"{u:range}", rowsOracle("u", 1, "lane", "after_pos", "upto_pos"),
		"{u:key range}", rowsOracle("u", 1, "lane", "after_pos", "upto_pos", "key_hash", "#ordering_key"),
		"{named}", "(o.lane, o.pos, o.id) IN (SELECT /*+ UNNEST CARDINALITY(u 10) */ u.lane, u.pos, u.id FROM {u:row})",
		"{placed}", "(o.lane, o.id) IN (SELECT /*+ UNNEST CARDINALITY(u 10) */ u.lane, u.id FROM {u:lane+id})",
		"{erase}", "DELETE /*+ INDEX(o (lane pos)) */ FROM {outbox} o WHERE o.lane = #1 AND o.pos = #2 AND o.id = #3",
		"{lifted}", `k.unparking <> 0
   AND NOT EXISTS (SELECT 1 FROM {deferred} o WHERE o.lane = k.lane AND o.key_hash = k.key_hash AND o.ordering_key = k.ordering_key AND o.due_at IS NULL)`,
	},
	texts: texts{
		Version: `SELECT v.version || ' ' || TRIM(v.product) || ', ' || n.value
  FROM product_component_version v CROSS JOIN nls_database_parameters n WHERE v.product LIKE 'Oracle%' AND n.parameter = 'NLS_CHARACTERSET'`,
		// Others than their owner see only the tables that they have a right on.
		Absent: `SELECT t.name FROM (` + eachTable("SELECT '%s' AS name, {~%[1]s} AS place FROM DUAL", " UNION ALL ") + `) t
 WHERE {schema} = SYS_CONTEXT('USERENV', 'SESSION_USER') AND NOT EXISTS (SELECT 1 FROM all_tables m WHERE m.owner = {schema} AND m.table_name = t.place)`,
		Foreign: `SELECT t.place FROM (` + signsOracle() + `) t
 WHERE EXISTS (SELECT 1 FROM all_tables m WHERE m.owner = {schema} AND m.table_name = t.place)
   AND NOT EXISTS (SELECT 1 FROM all_tab_columns c WHERE c.owner = {schema} AND c.table_name = t.place AND c.column_name = t.sign)`,
		ReadOnly:   `SELECT CASE WHEN SYS_CONTEXT('USERENV', 'DATABASE_ROLE') = 'PHYSICAL STANDBY' THEN 1 ELSE 0 END FROM DUAL`,
		TryRights:  rightsOracle(),
		Whom:       `SELECT '"' || USER || '"', '"' || SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') || '"' FROM DUAL`,
		HasMeta:    `SELECT COUNT(*) FROM all_tables WHERE owner = {schema} AND table_name = {~meta}`,
		HasSchema:  `SELECT COUNT(*) FROM all_users WHERE username = ?1`,
		Meta:       `SELECT name, value FROM {meta}`,
		Routes:     `SELECT name, first_lane, ordered_lanes, unordered_lanes FROM {routes} ORDER BY first_lane`,
		LockRoutes: `LOCK TABLE {routes} IN EXCLUSIVE MODE`,
		AddRoute:   `INSERT INTO {routes} (name, first_lane, ordered_lanes, unordered_lanes) VALUES (?1, ?2, ?3, ?4)`,
		AddLanes:   `INSERT INTO {lanes} (lane, is_ordered, route) VALUES (#1, #2, ?2)`,
		AddMarks:   `INSERT INTO {lane_marks} (lane) VALUES (#1)`,
		Now:        `SELECT {now} FROM DUAL`,

		QueueOne:  `INSERT INTO {outbox} ({columns}) VALUES ({one})`,
		QueueMany: `INSERT INTO {outbox} ({columns}) VALUES ({many})`,
		DeferOne:  `INSERT INTO {deferred} (due_at, {columns}) VALUES (?11, {one})`,
		DeferMany: `INSERT INTO {deferred} (due_at, {columns}) VALUES (#11, {many})`,
		UnlistHot: `DELETE /*+ INDEX(o (lane id)) */ FROM {outbox} o WHERE o.lane = #1 AND o.id = #2`,
		PendingIDs: `SELECT u.id FROM {u:id} CROSS JOIN {r}
 WHERE EXISTS (SELECT /*+ INDEX(p (lane id)) */ 1 FROM {lanes} l JOIN {outbox} p ON p.lane = l.lane AND p.id = u.id WHERE l.lane BETWEEN r.first_lane AND r.last_lane)
    OR EXISTS (SELECT /*+ INDEX(p (lane id)) */ 1 FROM {lanes} l JOIN {deferred} p ON p.lane = l.lane AND p.id = u.id WHERE l.lane BETWEEN r.first_lane AND r.last_lane)`,

		ReadLane: limited{`SELECT {o.row} FROM (
  SELECT * FROM (SELECT /*+ INDEX(o (lane id)) */ {o.held} FROM {outbox} o WHERE o.lane = ?2 AND o.id > ?3 AND o.key_hash IS NOT NULL
    AND {ready:1} ORDER BY o.id FETCH FIRST {LIMIT} ROWS ONLY)
  UNION ALL
  SELECT * FROM (SELECT /*+ INDEX(o (lane id)) */ {o.held} FROM {deferred} o WHERE o.lane = ?2 AND o.id > ?3 AND o.key_hash IS NOT NULL
    AND {due:1} ORDER BY o.id FETCH FIRST {LIMIT} ROWS ONLY)) o
 ORDER BY o.id FETCH FIRST {LIMIT} ROWS ONLY`},
		ReadUnordered: limited{`SELECT {o.row} FROM (
  SELECT {o.held} FROM {u:lane} CROSS APPLY (SELECT /*+ INDEX(o (lane id)) */ {o.held} FROM {outbox} o WHERE o.lane = u.lane AND o.id > ?3
    AND {ready:2} ORDER BY o.id FETCH FIRST {LIMIT} ROWS ONLY) o
  UNION ALL
  SELECT {o.held} FROM {u:lane} CROSS APPLY (SELECT /*+ INDEX(o (lane id)) */ {o.held} FROM {deferred} o WHERE o.lane = u.lane AND o.id > ?3
    AND {due:2} ORDER BY o.id FETCH FIRST {LIMIT} ROWS ONLY) o) o
 ORDER BY o.id FETCH FIRST {LIMIT} ROWS ONLY`},
		FindPending: `SELECT o.lane FROM {lanes} l JOIN {outbox} o ON o.lane = l.lane AND o.id = ?1
UNION ALL SELECT o.lane FROM {lanes} l JOIN {deferred} o ON o.lane = l.lane AND o.id = ?1`,
		LockLane:  `SELECT owner FROM {lanes} WHERE lane = ?1 FOR UPDATE`,
		LockRelay: `SELECT CASE WHEN ended = 0 AND expires_at > {now} THEN 1 ELSE 0 END FROM {relays} WHERE owner = ?1 FOR UPDATE`,
		ClaimHot: `UPDATE {outbox} o SET o.claim_token = ?4, o.claim_until = ?5 WHERE o.lane = ?2 AND o.id = ?3
    AND {ready:1}`,
		ClaimDeferred: `UPDATE {deferred} o SET o.claim_token = ?4, o.claim_until = ?5 WHERE o.lane = ?2 AND o.id = ?3
    AND {due:1}`,
		RenewHot: `UPDATE /*+ USE_NL(o) INDEX(o (lane id)) */ {outbox} o SET o.claim_until = GREATEST(o.claim_until, ?4)
 WHERE o.lane IN {every_lane} AND o.id = ?2 AND o.claim_token = ?3 AND o.claim_until > ?1`,
		RenewDeferred: `UPDATE /*+ USE_NL(o) INDEX(o (lane id)) */ {deferred} o SET o.claim_until = GREATEST(o.claim_until, ?4)
 WHERE o.lane IN {every_lane} AND o.id = ?2 AND o.claim_token = ?3 AND o.claim_until > ?1`,
		DoneHot: `DELETE /*+ USE_NL(o) INDEX(o (lane id)) */ FROM {outbox} o
 WHERE o.lane IN {every_lane} AND o.id = ?2 AND o.claim_token = ?3 AND o.claim_until > ?1`,
		DoneDeferred: `DELETE /*+ USE_NL(o) INDEX(o (lane id)) */ FROM {deferred} o
 WHERE o.lane IN {every_lane} AND o.id = ?2 AND o.claim_token = ?3 AND o.claim_until > ?1`,
		ClaimedHot: `SELECT /*+ USE_NL(o) INDEX(o (lane id)) */ o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END FROM {outbox} o
 WHERE o.lane IN {every_lane} AND o.id = ?2 AND o.claim_token = ?3 AND o.claim_until > ?1 FOR UPDATE`,
		ClaimedDeferred: `SELECT /*+ USE_NL(o) INDEX(o (lane id)) */ o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END FROM {deferred} o
 WHERE o.lane IN {every_lane} AND o.id = ?2 AND o.claim_token = ?3 AND o.claim_until > ?1 FOR UPDATE`,
		UnclaimHot:      `UPDATE {outbox} SET claim_token = NULL, claim_until = NULL WHERE lane = ?1 AND id = ?2`,
		UnclaimDeferred: `UPDATE {deferred} SET claim_token = NULL, claim_until = NULL WHERE lane = ?1 AND id = ?2`,
		CountHot: `SELECT COUNT(*), MIN(o.created_at) FROM {outbox} o WHERE o.lane BETWEEN ?2 AND ?3
    AND {ready:1}`,
		CountDeferred: `SELECT COUNT(*), MIN(o.created_at) FROM {deferred} o WHERE o.lane BETWEEN ?2 AND ?3
    AND {due:1}`,
		Oldest: `SELECT MIN(x.created_at) FROM (
  SELECT y.created_at FROM {u:lane} CROSS APPLY (SELECT /*+ INDEX(o (lane pos)) */ o.created_at FROM {outbox} o WHERE o.lane = u.lane
    AND {ready:2} ORDER BY o.pos FETCH FIRST 128 ROWS ONLY) y
  UNION ALL
  SELECT y.created_at FROM {u:lane} CROSS APPLY (SELECT /*+ INDEX(o (lane due_at pos)) */ o.created_at FROM {deferred} o WHERE o.lane = u.lane
    AND {due:2} ORDER BY o.due_at, o.pos FETCH FIRST 128 ROWS ONLY) y) x`,

		LiveRelays: `SELECT owner, routes, expires_at, {now} FROM {relays} WHERE ended = 0 AND expires_at > {now}`,
		HeldLanes:  `SELECT lane FROM {lanes} WHERE owner = ?1`,
		LockLanes: `SELECT l.lane FROM {lanes} l WHERE (l.lane, l.epoch) IN (SELECT u.lane, u.epoch FROM {u:lane+epoch}) AND l.owner = ?2
 ORDER BY l.lane FOR UPDATE`,
		LockOwned: `SELECT lane FROM {lanes} WHERE owner = ?1 ORDER BY lane FOR UPDATE`,
		Candidates: `SELECT l.lane, l.owner, CASE WHEN EXISTS (SELECT 1 FROM {relays} r WHERE r.owner = l.owner) THEN 1 ELSE 0 END
  FROM {lanes} l
 WHERE l.lane IN (SELECT x.lane FROM (SELECT c.lane FROM {lanes} c WHERE c.lane BETWEEN ?1 AND ?2
          AND NOT EXISTS (SELECT 1 FROM {relays} r WHERE r.owner = c.owner AND r.ended = 0 AND r.expires_at > {now})
        ORDER BY c.lane FETCH FIRST ?3 ROWS ONLY) x)
   AND NOT EXISTS (SELECT 1 FROM {relays} r WHERE r.owner = l.owner AND r.ended = 0 AND r.expires_at > {now})
 ORDER BY l.lane FOR UPDATE SKIP LOCKED`,
		LockOwner: `SELECT expires_at, ended FROM {relays} WHERE owner = ?1 FOR UPDATE`,
		Owners:    `SELECT r.owner FROM {relays} r WHERE r.owner IN (SELECT u.owner FROM {u:owner})`,
		LockOwners: `SELECT r.owner, r.expires_at, r.ended FROM {relays} r WHERE r.owner IN (SELECT u.owner FROM {u:owner})
 ORDER BY r.owner FOR UPDATE SKIP LOCKED`,
		AddRelay:   `INSERT INTO {relays} (owner, expires_at, ended, routes) VALUES (?1, ?2, ?4, ?3)`,
		RenewRelay: `UPDATE {relays} SET expires_at = GREATEST(expires_at, ?2), ended = ?4, routes = ?3 WHERE owner = ?1`,
		// A row that SKIP LOCKED returns is locked as it is fetched, and may have changed
		// since the statement began: an owner, or a claim of the inbox, is judged once more
		// where it is ended.
		EndRelays:    `UPDATE {relays} SET ended = 1 WHERE owner = #1 AND expires_at <= {now}`,
		ReleaseLanes: `UPDATE {lanes} SET owner = NULL, unclean = 0 WHERE lane = #1 AND owner = ?2`,
		TakeLanes: `UPDATE {lanes} l SET l.unclean = CASE WHEN l.owner IS NULL THEN 0 ELSE 1 END, l.owner = ?2, l.epoch = l.epoch + 1
 WHERE l.lane = #1 AND NOT EXISTS (SELECT 1 FROM {relays} r WHERE r.owner = l.owner AND r.ended = 0 AND r.expires_at > {now})`,
		Leases: `SELECT l.lane, l.route, l.epoch, l.config, l.unclean, m.tried_to,
  CASE WHEN EXISTS (SELECT 1 FROM {dead} d WHERE d.lane = l.lane AND d.key_hash IS NOT NULL) THEN 1 ELSE 0 END
  FROM {lanes} l JOIN {lane_marks} m ON m.lane = l.lane
 WHERE l.owner = ?1 ORDER BY l.lane`,
		ForgetRelays: `DELETE FROM {relays} g WHERE g.expires_at < ?1 AND NOT EXISTS (SELECT 1 FROM {lanes} l WHERE l.owner = g.owner)`,

		Fence: `SELECT l.lane, l.config FROM {lanes} l WHERE (l.lane, l.epoch) IN (SELECT u.lane, u.epoch FROM {u:lane+epoch}) AND l.owner = ?2
 ORDER BY l.lane FOR UPDATE`,
		ReadRanges: limited{`SELECT u.ord, {o.lean row}, {claimed}, {prev}, CAST(NULL AS VARCHAR2(1)) AS hint, {withheld} AS withheld
  FROM {u:range} CROSS APPLY (SELECT /*+ INDEX(o (lane pos)) */ {o.held} FROM {outbox} o
    WHERE o.lane = u.lane AND o.pos > u.after_pos AND o.pos <= u.upto_pos ORDER BY o.pos FETCH FIRST {LIMIT} ROWS ONLY) o
  LEFT JOIN {f}`},
		SweepRanges: limited{`SELECT u.ord, o.lane, o.pos, o.id, o.key_hash, o.bytes
  FROM {u:range} CROSS APPLY (SELECT /*+ INDEX(o (lane pos)) */ o.lane, o.pos, o.id, o.key_hash, COALESCE({length}, 0) AS bytes FROM {outbox} o
    WHERE o.lane = u.lane AND o.pos > u.after_pos AND o.pos <= u.upto_pos ORDER BY o.pos FETCH FIRST {LIMIT} ROWS ONLY) o`},
		ReadKeys: limited{`SELECT u.ord, {o.lean row}, {claimed}, {prev}, CAST(NULL AS VARCHAR2(1)) AS hint, {withheld} AS withheld
  FROM {u:key range} CROSS APPLY (SELECT /*+ INDEX(o (lane key_hash ordering_key pos)) */ {o.held} FROM {outbox} o
    WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key AND o.pos > u.after_pos AND o.pos <= u.upto_pos
    ORDER BY o.pos FETCH FIRST {LIMIT} ROWS ONLY) o
  LEFT JOIN {f}
UNION ALL
SELECT u.ord, {o.lean row}, {claimed}, {prev}, CAST(NULL AS VARCHAR2(1)) AS hint, {withheld} AS withheld
  FROM {u:key range} CROSS APPLY (SELECT /*+ INDEX(o (lane pos)) */ {o.held} FROM {outbox} o
    WHERE u.key_hash IS NULL AND o.lane = u.lane AND o.pos > u.after_pos AND o.pos <= u.upto_pos ORDER BY o.pos FETCH FIRST {LIMIT} ROWS ONLY) o
  LEFT JOIN {f}`},
		// As a whole: parts of it would be no longer than 2,000 bytes.
		BodyPart:  `SELECT o.body FROM {outbox} o WHERE o.lane = ?1 AND o.pos = ?2 AND o.id = ?3`,
		SettleAll: `{erase}`,
		Settle: `> SELECT /*+ USE_NL(o) INDEX(o (lane pos)) */ o.id FROM {outbox} o WHERE {named} ORDER BY o.lane, o.pos FOR UPDATE
;; {erase}`,
		SettleKeys: `> SELECT /*+ USE_NL(o) INDEX(o (lane pos)) */ o.id, o.key_hash, o.ordering_key FROM {outbox} o WHERE {named} ORDER BY o.lane, o.pos FOR UPDATE
;; {erase}`,
		Lettered: `SELECT u.lane, u.key_hash FROM {u:lettered}
 WHERE EXISTS (SELECT /*+ NO_UNNEST INDEX(d (lane key_hash pos)) */ 1 FROM {dead} d WHERE d.lane = u.lane AND d.key_hash = u.key_hash)`,
		LettersFrom: `SELECT u.lane, u.key_hash, x.pos FROM {u:letters} CROSS APPLY (SELECT /*+ INDEX_DESC(d (lane key_hash pos)) */ d.pos FROM {dead} d
  WHERE d.lane = u.lane AND d.key_hash = u.key_hash AND d.pos < u.below ORDER BY d.pos DESC OFFSET 1023 ROWS FETCH NEXT 1 ROWS ONLY) x`,
		CountLater: `UPDATE /*+ INDEX(d (lane key_hash pos)) */ {dead} d SET d.later_out = d.later_out + #6
 WHERE d.lane = #1 AND d.key_hash = #2 AND d.ordering_key = #3 AND d.pos >= #4 AND d.pos < #5`,
		FindHot: `SELECT /*+ USE_NL(o) INDEX(o (lane pos)) */ o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM {outbox} o WHERE {named} ORDER BY o.lane, o.pos FOR UPDATE`,
		FindDeferred: `SELECT /*+ USE_NL(o) INDEX(o (lane id)) */ o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM {deferred} o WHERE {named} ORDER BY o.lane, o.id FOR UPDATE`,
		DropDeferred: `DELETE /*+ INDEX(o (lane id)) */ FROM {deferred} o WHERE o.lane = #1 AND o.id = #2`,
		FailHot: `UPDATE /*+ INDEX(o (lane id)) */ {outbox} o SET o.attempts = #3, o.retry_at = #5, o.first_failed_at = COALESCE(o.first_failed_at, {now}), o.last_error = #4
 WHERE o.lane = #1 AND o.id = #2`,
		FailDeferred: `UPDATE /*+ INDEX(o (lane id)) */ {deferred} o SET o.attempts = #3, o.retry_at = #5, o.first_failed_at = COALESCE(o.first_failed_at, {now}),
       o.due_at = CASE WHEN o.due_at IS NULL THEN NULL ELSE GREATEST(COALESCE(o.deliver_at, 0), COALESCE(TO_NUMBER(#5), 0)) END, o.last_error = #4
 WHERE o.lane = #1 AND o.id = #2`,
		Defer: `> SELECT /*+ USE_NL(o) INDEX(o (lane id)) */ o.lane, o.id FROM {outbox} o
 WHERE (o.lane, o.id) IN (SELECT /*+ UNNEST CARDINALITY(u 10) */ u.lane, u.id FROM ` + rowsOracle("u", 1, "lane", "#id", "aside") + `)
   AND NOT EXISTS (SELECT 1 FROM {deferred} p WHERE p.lane = o.lane AND p.id = o.id) ORDER BY o.lane, o.id FOR UPDATE
;; INSERT INTO {deferred} (pos, {moved}, {state}, due_at)
SELECT /*+ INDEX(o (lane id)) */ o.pos, {o.moved}, {o.state}, CASE WHEN #3 <> 0 THEN NULL ELSE {due_at} END
  FROM {outbox} o WHERE o.lane = #1 AND o.id = #2
   AND NOT EXISTS (SELECT 1 FROM {deferred} p WHERE p.lane = o.lane AND p.id = o.id)`,
		// A long reason goes over only as a value by itself.
		BuryHot: `INSERT INTO {dead} (pos, {moved}, attempts, first_failed_at, reason, died_at)
SELECT /*+ INDEX(o (lane id)) */ o.pos, {o.moved}, #3, o.first_failed_at, '-', {now} FROM {outbox} o WHERE o.lane = #1 AND o.id = #2
;; UPDATE {dead} SET reason = #4, last_error = #4 WHERE id = #2`,
		BuryDeferred: `INSERT INTO {dead} (pos, {moved}, attempts, first_failed_at, reason, died_at)
SELECT /*+ INDEX(o (lane id)) */ o.pos, {o.moved}, #3, o.first_failed_at, '-', {now} FROM {deferred} o WHERE o.lane = #1 AND o.id = #2
;; UPDATE {dead} SET reason = #4, last_error = #4 WHERE id = #2`,
		DropDead: `DELETE FROM {dead} WHERE id = #1`,
		Marks:    `UPDATE {lane_marks} SET tried_to = #2 WHERE lane = #1 AND tried_to < #2`,
		// Locked: of two promotions at once, the second would take a row that the first
		// has moved for one that is ready already.
		Due: limited{`SELECT /*+ USE_NL(o) INDEX(o (lane id)) */ o.lane, o.id, o.ordering_key FROM {deferred} o
 WHERE (o.lane, o.id) IN (SELECT /*+ UNNEST CARDINALITY(x 10) */ x.lane, x.id FROM (
   SELECT y.lane, y.id FROM {u:lane} CROSS APPLY (SELECT /*+ INDEX(d (lane due_at pos)) */ d.lane, d.id, d.due_at, d.pos FROM {deferred} d
     WHERE d.lane = u.lane AND d.due_at <= {now} AND (d.claim_until IS NULL OR d.claim_until <= {now}) ORDER BY d.due_at, d.pos FETCH FIRST {LIMIT} ROWS ONLY) y
    ORDER BY u.ord, y.due_at, y.pos FETCH FIRST ?2 ROWS ONLY) x)
   AND o.due_at <= {now} AND (o.claim_until IS NULL OR o.claim_until <= {now})
 ORDER BY o.lane, o.due_at, o.pos FOR UPDATE SKIP LOCKED`},
		// A row whose id is ready already goes first: the others are told from it by
		// being deferred still.
		Promote: `DELETE /*+ INDEX(d (lane id)) */ FROM {deferred} d WHERE d.lane = #1 AND d.id = #2 AND EXISTS (SELECT 1 FROM {outbox} p WHERE p.lane = d.lane AND p.id = d.id)
;; INSERT INTO {outbox} ({moved}, {state}) SELECT /*+ INDEX(d (lane id)) */ {d.moved}, {d.state} FROM {deferred} d WHERE d.lane = #1 AND d.id = #2
;; > SELECT /*+ USE_NL(o) INDEX(o (lane id)) */ {o.row} FROM {outbox} o WHERE {placed}
   AND EXISTS (SELECT 1 FROM {deferred} d WHERE d.lane = o.lane AND d.id = o.id)`,
		NextDue: `SELECT MIN(x.due_at) FROM {u:lane} CROSS APPLY (SELECT /*+ INDEX(o (lane due_at pos)) */ o.due_at FROM {deferred} o
  WHERE o.lane = u.lane AND o.due_at IS NOT NULL AND (o.claim_until IS NULL OR o.claim_until <= GREATEST({now}, o.due_at))
  ORDER BY o.due_at, o.pos FETCH FIRST 1 ROWS ONLY) x`,
		NextClaimed: `SELECT MIN(x.claim_until) FROM {u:lane} CROSS APPLY (SELECT /*+ INDEX(o (lane due_at pos)) */ o.claim_until FROM {deferred} o
  WHERE o.lane = u.lane AND o.due_at <= {now} ORDER BY o.due_at, o.pos FETCH FIRST 1024 ROWS ONLY) x
 WHERE x.claim_until > {now}`,

		Park: `UPDATE {parked_keys} SET unparking = 0, why = #4^, parked_by = ?2^, parked_at = {now}
 WHERE lane = #1 AND key_hash = #2 AND ordering_key = #3 AND unparking <> 0
;; INSERT INTO {parked_keys} (lane, key_hash, ordering_key, why, parked_by, parked_at)
SELECT #1, #2, #3, #4^, ?2^, {now} FROM DUAL
 WHERE NOT EXISTS (SELECT 1 FROM {parked_keys} k WHERE k.lane = #1 AND k.key_hash = #2 AND k.ordering_key = #3)`,
		Unpark: `UPDATE {parked_keys} SET unparking = 1 WHERE lane = ?1 AND key_hash = ?2 AND ordering_key = ?3 AND unparking = 0`,
		Lift: `> SELECT k.lane, k.ordering_key FROM {parked_keys} k WHERE (k.lane, k.key_hash, k.ordering_key) IN (SELECT u.lane, u.key_hash, u.ordering_key FROM {u:key})
   AND {lifted} FOR UPDATE
;; DELETE FROM {parked_keys} k WHERE k.lane = #1 AND k.key_hash = #2 AND k.ordering_key = #3 AND {lifted}`,
		Parked: `SELECT lane, key_hash, ordering_key, unparking, parked_by, parked_at, why FROM {parked_keys}`,
		ParkedRows: limited{`SELECT y.lane, y.id FROM {u:key} CROSS APPLY (SELECT /*+ INDEX(o (lane key_hash ordering_key pos)) */ o.lane, o.id, o.pos FROM {outbox} o
   WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key ORDER BY o.pos FETCH FIRST {LIMIT} ROWS ONLY) y
 ORDER BY u.ord, y.pos FETCH FIRST ?2 ROWS ONLY`},
		AsideRows: limited{`SELECT y.lane, y.id FROM {u:key} CROSS APPLY (SELECT /*+ INDEX(o (lane key_hash ordering_key due_at pos)) */ o.lane, o.id, o.pos FROM {deferred} o
   WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key AND o.due_at IS NULL ORDER BY o.pos FETCH FIRST {LIMIT} ROWS ONLY) y
 ORDER BY u.ord, y.pos FETCH FIRST ?2 ROWS ONLY`},
		Return: `INSERT INTO {outbox} (pos, {moved}, {state})
SELECT /*+ INDEX(d (lane id)) */ CASE WHEN EXISTS (SELECT 1 FROM {outbox} p WHERE p.lane = d.lane AND p.pos = d.pos) THEN NULL ELSE d.pos END, {d.moved}, {d.state}
  FROM {deferred} d WHERE d.lane = #1 AND d.id = #2
   AND NOT EXISTS (SELECT 1 FROM {outbox} p WHERE p.lane = d.lane AND p.id = d.id)`,
		SeenConfig:  `UPDATE {lane_marks} SET config_seen = #2 WHERE lane = #1 AND config_seen < #2`,
		RaiseConfig: `UPDATE {lanes} SET config = config + 1 WHERE lane = #1`,
		CountAside:  `SELECT COUNT(*) FROM {deferred} WHERE lane BETWEEN ?1 AND ?2`,
		CountParked: `SELECT COUNT(*) FROM {parked_keys} WHERE lane BETWEEN ?1 AND ?2`,
		Audit:       `INSERT INTO {audit} (at, done_by, what, how_many, detail) VALUES ({now}, ?1^, ?2, ?3, ?4)`,
		LaneOwners:  `SELECT lane, owner FROM {lanes} WHERE owner IS NOT NULL`,
		ListDead: limited{`SELECT {dead row}
  FROM {dead} o WHERE o.died_at >= ?1 AND (o.died_at > ?1 OR o.id > ?2) ORDER BY o.died_at, o.id FETCH FIRST {LIMIT} ROWS ONLY`},
		ListDeadOf: limited{`SELECT {dead row}
  FROM {dead} o WHERE o.transport = ?4 AND o.died_at >= ?1 AND (o.died_at > ?1 OR o.id > ?2) ORDER BY o.died_at, o.id FETCH FIRST {LIMIT} ROWS ONLY`},
		CountDead:   `SELECT COUNT(*) FROM {dead}`,
		CountDeadOf: `SELECT COUNT(*) FROM {dead} WHERE transport = ?1`,
		Confirmed: `SELECT COUNT(*) FROM {lanes} l JOIN {lane_marks} m ON m.lane = l.lane JOIN {relays} r ON r.owner = l.owner
 WHERE l.lane IN (SELECT u.lane FROM {u:lane}) AND m.config_seen < l.config AND r.ended = 0 AND r.expires_at > {now}`,
		LanesOfDead: `SELECT d.lane FROM {dead} d WHERE d.id IN (SELECT /*+ UNNEST CARDINALITY(u 10) */ u.id FROM {u:id})`,
		LockDead: `SELECT /*+ USE_NL(d) INDEX(d (id)) */ d.id, d.lane, d.transport, d.ordering_key, d.later_out FROM {dead} d
 WHERE d.id IN (SELECT /*+ UNNEST CARDINALITY(u 10) */ u.id FROM {u:id}) ORDER BY d.id FOR UPDATE`,
		Replay: `> SELECT d.id FROM {dead} d WHERE d.id IN (SELECT /*+ UNNEST CARDINALITY(u 10) */ u.id FROM {u:id})
   AND NOT EXISTS (SELECT 1 FROM {outbox} p WHERE p.lane = d.lane AND p.id = d.id) ORDER BY d.id FOR UPDATE
;; INSERT INTO {outbox} (pos, {moved})
SELECT CASE WHEN d.pos = 0 OR EXISTS (SELECT 1 FROM {outbox} p WHERE p.lane = d.lane AND p.pos = d.pos) THEN NULL ELSE d.pos END, {d.moved}
  FROM {dead} d WHERE d.id = #1
   AND NOT EXISTS (SELECT 1 FROM {outbox} p WHERE p.lane = d.lane AND p.id = d.id)`,

		// In a block, for an INSERT that fails is no error there: it has waited for the
		// other delivery, which is in sight now. The record may be purged between the two.
		Reserve: `BEGIN
  FOR attempt IN 1 .. 3 LOOP
    BEGIN
      INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at) VALUES (?1, ?2, ?3, ?4);
      EXIT;
    EXCEPTION WHEN DUP_VAL_ON_INDEX THEN
      UPDATE {inbox} SET repeats = CASE WHEN expires_at <= ?3 THEN 0 ELSE repeats + 1 END,
          processed_at = CASE WHEN expires_at <= ?3 THEN ?3 ELSE processed_at END,
          token = CASE WHEN expires_at <= ?3 THEN NULL ELSE token END,
          expires_at = CASE WHEN expires_at <= ?3 THEN TO_NUMBER(?4) ELSE expires_at END
       WHERE consumer = ?1 AND message_id = ?2;
      EXIT WHEN SQL%ROWCOUNT > 0;
    END;
  END LOOP;
END;
;; > SELECT 1 FROM {inbox} WHERE consumer = ?1 AND message_id = ?2 AND repeats = 0`,
		Processed: `SELECT COUNT(*) FROM {inbox} WHERE consumer = ?2 AND message_id = ?3 AND token IS NULL AND (expires_at IS NULL OR expires_at > ?1)`,
		MarkInbox: `BEGIN
  FOR attempt IN 1 .. 3 LOOP
    BEGIN
      INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at) VALUES (?1, ?2, ?3, ?4);
      EXIT;
    EXCEPTION WHEN DUP_VAL_ON_INDEX THEN
      UPDATE {inbox} SET processed_at = ?3, expires_at = ?4, token = NULL WHERE consumer = ?1 AND message_id = ?2;
      EXIT WHEN SQL%ROWCOUNT > 0;
    END;
  END LOOP;
END;`,
		ClaimInbox: `BEGIN
  FOR attempt IN 1 .. 3 LOOP
    BEGIN
      INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at, token) VALUES (?1, ?2, ?3, ?4, ?5);
      EXIT;
    EXCEPTION WHEN DUP_VAL_ON_INDEX THEN
      UPDATE {inbox} SET repeats = CASE WHEN expires_at <= ?3 THEN 0 ELSE repeats END,
          processed_at = CASE WHEN expires_at <= ?3 THEN ?3 ELSE processed_at END,
          token = CASE WHEN expires_at <= ?3 THEN ?5 ELSE token END,
          expires_at = CASE WHEN expires_at <= ?3 THEN TO_NUMBER(?4) ELSE expires_at END
       WHERE consumer = ?1 AND message_id = ?2;
      EXIT WHEN SQL%ROWCOUNT > 0;
    END;
  END LOOP;
END;`,
		InboxToken: `SELECT token FROM {inbox} WHERE consumer = ?1 AND message_id = ?2`,
		RenewInbox: `UPDATE {inbox} SET expires_at = GREATEST(expires_at, ?4) WHERE consumer = ?1 AND message_id = ?2 AND token = ?5 AND expires_at > ?3`,
		CompleteInbox: `UPDATE {inbox} SET processed_at = ?3, expires_at = ?4, token = NULL
 WHERE consumer = ?1 AND message_id = ?2 AND token = ?5`,
		ReleaseInbox: `DELETE FROM {inbox} WHERE consumer = ?1 AND message_id = ?2 AND token = ?3`,
		PurgeInbox: limited{`SELECT i.consumer, i.message_id FROM {inbox} i
 WHERE (i.consumer, i.message_id) IN (SELECT /*+ UNNEST CARDINALITY(x 10) */ x.consumer, x.message_id FROM (SELECT e.consumer, e.message_id FROM {inbox} e
    WHERE e.expires_at <= ?1 ORDER BY e.expires_at FETCH FIRST {LIMIT} ROWS ONLY) x)
   AND i.expires_at <= ?1 FOR UPDATE SKIP LOCKED`},
		DropInbox: `DELETE FROM {inbox} WHERE consumer = #1 AND message_id = #2 AND expires_at <= ?2`,
	},
}

// nowOracle is the server's clock. All calls of SYSTIMESTAMP in a statement return
// the time at which it began.
const nowOracle = `FLOOR(EXTRACT(DAY FROM (SYS_EXTRACT_UTC(SYSTIMESTAMP) - TIMESTAMP '1970-01-01 00:00:00')) * 86400000000 + EXTRACT(HOUR FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 3600000000 + EXTRACT(MINUTE FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 60000000 + EXTRACT(SECOND FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 1000000)`

// columnsOracle are a message's columns in an INSERT: those that may be long last,
// behind which the server takes nothing of more than 4,000 bytes.
const columnsOracle = `lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, deliver_at, created_at, tenant, envelope,
    ce_source, ce_subject, ce_time, ce_dataschema, correlation_id, causation_id, traceparent, body_empty, tracestate, headers, ce_extensions, body`

// valuesOracle are the values of columnsOracle, by their places in messageColumns.
func valuesOracle(sign string) string {
	list := strings.Fields("1 2 3 4$ 5 6 7 8 11 12 13 14 15 16 17 18 20 21 22 10! 23 9$ 19$ 10$")
	return sign + strings.Join(list, ", "+sign)
}

// movedOracle are the columns that a message takes from one table to another.
func movedOracle(alias string) string {
	return alias + strings.Join(messageColumns, ", "+alias) + ", " + alias + "body_empty"
}

// rowOracle is {o.row} with another body. Each column has a name, for a query that
// limits its rows is made a sub-select.
func rowOracle(body string) string {
	row := "o.pos, o." + strings.Join(messageColumns, ", o.") + ", o.attempts, o.last_error, o.retry_at"
	if body != "o.body" {
		row = strings.Replace(row, "o.body", body+" AS body", 1)
	}
	return strings.Replace(row, "o.envelope", fmt.Sprintf("o.envelope + o.body_empty * %d AS envelope", emptyBody), 1)
}

// rowsOracle is a table of the rows of a list in JSON, with their numbers from 1 in
// ord. A name that starts with # is of bytes.
func rowsOracle(name string, arg int, columns ...string) string {
	var out, in strings.Builder
	for i, c := range columns {
		plain, bytes := strings.CutPrefix(c, "#")
		kind, expr := "NUMBER", "j."+plain
		switch {
		case plain == "ordering_key":
			kind = "VARCHAR2(2048)"
		case bytes:
			kind = "VARCHAR2(32)"
		}
		if bytes {
			expr = "HEXTORAW(j." + plain + ") AS " + plain
		}
		out.WriteString(", " + expr)
		in.WriteString(", " + plain + " " + kind + " PATH '$[" + strconv.Itoa(i+1) + "]'")
	}
	return fmt.Sprintf("([< UNION ALL |SELECT j.ord%s FROM JSON_TABLE(CAST(?%d AS VARCHAR2(4000 BYTE)), '$[*]' COLUMNS (ord NUMBER PATH '$[0]'%s)) j>]) %s", out.String(), arg, in.String(), name)
}

// codeOracle is the number of the server's error, 0 if it is none. Drivers agree on
// its text alone, "ORA-00060: deadlock detected while waiting for resource". What
// goes wrong inside a block stands behind where it was.
func codeOracle(err error) int {
	if err == nil {
		return 0
	}
	for rest := err.Error(); ; {
		_, after, ok := strings.Cut(rest, "ORA-")
		if !ok {
			return 0
		}
		digits := after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
		n, _ := strconv.Atoi(digits)
		if n != 0 && n != 6550 && n != 6512 {
			return n
		}
		rest = after
	}
}

// prepareOracle readies a connection for good: what was set before is not known,
// and the connection is thrown away in the end.
func prepareOracle(ctx context.Context, c Querier, purpose string) (func(context.Context) error, error) {
	list := []string{"ALTER SESSION SET ISOLATION_LEVEL = READ COMMITTED"}
	if purpose == "migrate" {
		list = append(list, "ALTER SESSION SET DDL_LOCK_TIMEOUT = 60")
	}
	for _, text := range list {
		if _, err := c.Exec(ctx, text); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// signsOracle are the tables, each with a column that hardly another has.
func signsOracle() string {
	var parts []string
	for _, t := range [...][2]string{
		{"outbox", "KEY_HASH"}, {"deferred", "DUE_AT"}, {"dead", "LATER_OUT"}, {"routes", "FIRST_LANE"}, {"lanes", "IS_ORDERED"},
		{"lane_marks", "CONFIG_SEEN"}, {"relays", "EXPIRES_AT"}, {"parked_keys", "UNPARKING"}, {"audit", "HOW_MANY"}, {"inbox", "REPEATS"},
		{"meta", "VALUE"},
	} {
		parts = append(parts, fmt.Sprintf("SELECT {~%s} AS place, '%s' AS sign FROM DUAL", t[0], t[1]))
	}
	return strings.Join(parts, " UNION ALL ")
}

// rightsOracle are statements that change nothing, and take one right of a relay each.
func rightsOracle() string {
	var list []string
	for _, t := range [][2]string{{"outbox", "attempts"}, {"deferred", "attempts"}, {"dead", "later_out"}, {"relays", "ended"}, {"parked_keys", "unparking"}} {
		list = append(list,
			fmt.Sprintf("if SELECT COUNT(*) FROM {%s} WHERE 1 = 0", t[0]),
			fmt.Sprintf("INSERT INTO {%s} (%s) SELECT 0 FROM DUAL WHERE 1 = 0", t[0], t[1]),
			fmt.Sprintf("UPDATE {%s} SET %s = 0 WHERE 1 = 0", t[0], t[1]),
			fmt.Sprintf("DELETE FROM {%s} WHERE 1 = 0", t[0]))
	}
	for _, t := range [][2]string{{"lanes", "epoch"}, {"lane_marks", "tried_to"}} {
		list = append(list, fmt.Sprintf("if SELECT COUNT(*) FROM {%s} WHERE 1 = 0", t[0]), fmt.Sprintf("UPDATE {%s} SET %s = 0 WHERE 1 = 0", t[0], t[1]))
	}
	list = append(list, "if SELECT COUNT(*) FROM {routes} WHERE 1 = 0", "if SELECT COUNT(*) FROM {meta} WHERE 1 = 0")
	// Last: a session that has drawn no number has no last one, which is another error.
	list = append(list, "if SELECT {outbox_pos}.CURRVAL FROM DUAL WHERE 1 = 0")
	return strings.Join(list, "\n;; ")
}
