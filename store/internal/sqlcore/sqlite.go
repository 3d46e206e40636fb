package sqlcore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
)

// SQLite 3.35 and later, in WAL mode.
//
// There is one writer at a time, so nothing commits late and no lock is named in
// a statement. The server's clock is the host's, to the millisecond. Lists go
// over as bytes, and a JSON list of where in them each row begins.
var SQLite = &sqliteDialect

var sqliteDialect = Dialect{
	name:   "SQLite",
	engine: schema.SQLite,
	// A transaction that begins with a read cannot wait for the write lock
	// later: it would fail at once.
	begin:         "BEGIN IMMEDIATE",
	rows:          func(columns int) RowWriter { return &packedRows{columns: columns} },
	named:         namedSQLite,
	span:          spanSQLite,
	id:            func(id outbox.ID) any { return id[:] },
	lanes:         func(first, n int64) any { return numbers('[', first, n, ']') },
	missing:       func(err error) bool { return strings.Contains(err.Error(), "no such table") },
	lacking:       lackingSQLite,
	stale:         staleSQLite,
	busy:          busySQLite,
	busyTx:        "begin transactions IMMEDIATE and let them wait for another writer, as _txlock=immediate and _pragma=busy_timeout(5000) do in a DSN of modernc.org/sqlite",
	refused:       func(err error) bool { c := codeSQLite(err); return c == 18 || c == 19 }, // too big, constraint
	denied:        func(err error) bool { return strings.Contains(err.Error(), "readonly database") },
	prepare:       prepareSQLite,
	beforeMigrate: writeAhead,
	inOrder:       true,
	least:         map[string][]int{"": {3, 35}},
	ready:         readySQLite,
	macros: []string{
		"{now}", "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)",
		"{unparked}", `(o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM {parked_keys} k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key))`,
		"{ready}", `(o.deliver_at IS NULL OR o.deliver_at <= ?1) AND (o.retry_at IS NULL OR o.retry_at <= ?1)
    AND (o.claim_until IS NULL OR o.claim_until <= ?1) AND {unparked}`,
		"{due}", `o.due_at <= ?1 AND (o.claim_until IS NULL OR o.claim_until <= ?1) AND {unparked}`,
		"{few}", "((SELECT count(*) FROM (SELECT 1 FROM {outbox} f WHERE f.lane = ?2 LIMIT 1025)) <= 1024)",
		"{few:unordered}", "((SELECT count(*) FROM (SELECT 1 FROM {lanes} l CROSS JOIN {outbox} f ON f.lane = l.lane WHERE l.is_ordered = 0 LIMIT 1025)) <= 1024)",
		"{one}", "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23",
		"{many}", rowsSQLite("lane", "id:id", "key_hash:null", "ordering_key:bytes", "transport:text", "message_type:text", "destination:text", "content_type:text",
			"headers:bytes", "body:bytes", "deliver_at:null", "created_at", "tenant:text", "envelope", "ce_source:text", "ce_subject:text",
			"ce_time:null", "ce_dataschema:text", "ce_extensions:bytes", "correlation_id:text", "causation_id:text", "traceparent:text", "tracestate:text"),
		"{fresh}", `NOT EXISTS (SELECT 1 FROM {outbox} p WHERE p.id = ?2 AND +p.lane IN (SELECT value FROM json_each(?24)))
   AND NOT EXISTS (SELECT 1 FROM {deferred} p WHERE p.id = ?2 AND +p.lane IN (SELECT value FROM json_each(?24)))`,
		"{stale}", `SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM {outbox} p WHERE p.id = u.id AND +p.lane IN (SELECT value FROM json_each(?3)))
    OR EXISTS (SELECT 1 FROM {deferred} p WHERE p.id = u.id AND +p.lane IN (SELECT value FROM json_each(?3)))`,
		"{state}", "attempts, last_error, first_failed_at, retry_at, claim_token, claim_until",
		"{o.state}", "o.attempts, o.last_error, o.first_failed_at, o.retry_at, o.claim_token, o.claim_until",
		"{claimed}", "CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > {now} THEN 1 ELSE 0 END",
		"{due_at}", "max(COALESCE(o.deliver_at, 0), COALESCE(o.retry_at, 0))",
		"{u:lane}", rowsSQLite("lane"),
		"{u:lane+epoch}", rowsSQLite("lane", "epoch"),
		"{u:lane+pos}", rowsSQLite("lane", "pos"),
		"{u:lane+id}", rowsSQLite("lane", "id:id"),
		"{u:id}", rowsSQLite("id:id"),
		"{u:row}", `(SELECT CAST(substr(?2, key * 26 + 17, 10) AS INTEGER) AS lane, value AS pos, substr(?2, key * 26 + 1, 16) AS id FROM json_each(?1)) u`,
		"{u:fail}", rowsSQLite("lane", "id:id", "attempts", "reason:text", "retry_at:null"),
		"{u:bury}", rowsSQLite("lane", "id:id", "attempts", "reason:text"),
		"{u:key}", rowsSQLite("lane", "key_hash", "ordering_key:bytes"),
	},
	texts: texts{
		Version: `SELECT sqlite_version()`,
		Absent: `SELECT t.name FROM (` + eachTable("SELECT '%s' AS name, {~%[1]s} AS place", " UNION ALL ") + `) t
 WHERE NOT EXISTS (SELECT 1 FROM sqlite_master m WHERE m.type = 'table' AND m.name = t.place)`,
		// A file that may only be read takes BEGIN IMMEDIATE, and begins to read.
		TryRights: `DELETE FROM {relays} WHERE 1 = 0`,
		HasMeta:   `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = {~meta}`,
		Meta:      `SELECT name, value FROM {meta}`,
		Routes:    `SELECT name, first_lane, ordered_lanes, unordered_lanes FROM {routes} ORDER BY first_lane`,
		AddRoute:  `INSERT INTO {routes} (name, first_lane, ordered_lanes, unordered_lanes) VALUES (?1, ?2, ?3, ?4)`,
		AddLanes:  `INSERT INTO {lanes} (lane, is_ordered, route) SELECT u.lane, u.is_ordered, ?3 FROM ` + rowsSQLite("lane", "is_ordered"),
		AddMarks:  `INSERT INTO {lane_marks} (lane) SELECT u.lane FROM {u:lane}`,
		Now:       `SELECT {now}`,

		EnlistOne: `INSERT INTO {outbox} ({msg})
SELECT {one}
 WHERE {fresh}
ON CONFLICT (lane, id) DO NOTHING`,
		EnlistMany: `WITH u AS MATERIALIZED (SELECT * FROM {many})
INSERT INTO {outbox} ({msg})
SELECT {u.msg} FROM u WHERE NOT EXISTS ({stale}) ORDER BY u.ord
ON CONFLICT (lane, id) DO NOTHING RETURNING id`,
		DeferOne: `INSERT INTO {deferred} ({msg}, due_at)
SELECT {one}, ?11
 WHERE {fresh}
ON CONFLICT (lane, id) DO NOTHING`,
		DeferMany: `WITH u AS MATERIALIZED (SELECT * FROM {many})
INSERT INTO {deferred} ({msg}, due_at)
SELECT {u.msg}, u.deliver_at FROM u WHERE NOT EXISTS ({stale}) ORDER BY u.ord
ON CONFLICT (lane, id) DO NOTHING RETURNING id`,
		UnlistHot: `DELETE FROM {outbox} WHERE (lane, id) IN (SELECT u.lane, u.id FROM {u:lane+id})`,
		PendingIDs: `SELECT u.id FROM {u:id}
 WHERE EXISTS (SELECT 1 FROM {outbox} p WHERE p.id = u.id AND +p.lane IN (SELECT value FROM json_each(?3)))
    OR EXISTS (SELECT 1 FROM {deferred} p WHERE p.id = u.id AND +p.lane IN (SELECT value FROM json_each(?3)))`,

		// The index of ids tells lanes apart, and is walked; a lane with few rows
		// is sorted instead, or all others would be walked past.
		ReadLane: limited{`SELECT * FROM (
  SELECT {row} FROM (SELECT * FROM {outbox} o INDEXED BY {=outbox_lane} WHERE {few} AND o.lane = ?2 AND o.id > ?3
    AND o.key_hash IS NOT NULL AND {ready} ORDER BY o.id LIMIT {LIMIT})
  UNION ALL
  SELECT {row} FROM (SELECT * FROM {outbox} o INDEXED BY {=outbox_id} WHERE NOT {few} AND o.lane = ?2 AND o.id > ?3
    AND o.key_hash IS NOT NULL AND {ready} ORDER BY o.id LIMIT {LIMIT})
  UNION ALL
  SELECT {row} FROM (SELECT * FROM {deferred} o WHERE o.lane = ?2 AND o.id > ?3 AND o.key_hash IS NOT NULL
    AND {due} ORDER BY o.lane, o.id LIMIT {LIMIT}))
 ORDER BY id LIMIT {LIMIT}`},
		// The correlated IN is what a LATERAL join is elsewhere.
		ReadUnordered: limited{`SELECT * FROM (
  SELECT {row} FROM (SELECT o.* FROM {lanes} l CROSS JOIN {outbox} o INDEXED BY {=outbox_lane} WHERE {few:unordered}
    AND l.is_ordered = 0 AND o.lane = l.lane AND o.id > ?2 AND {ready} ORDER BY o.id LIMIT {LIMIT})
  UNION ALL
  SELECT {row} FROM (SELECT * FROM {outbox} o INDEXED BY {=outbox_id} WHERE NOT {few:unordered}
    AND o.lane IN (SELECT l.lane FROM {lanes} l WHERE l.is_ordered = 0) AND o.id > ?2 AND {ready} ORDER BY o.id LIMIT {LIMIT})
  UNION ALL
  SELECT {d.row} FROM {lanes} l CROSS JOIN {deferred} d WHERE l.is_ordered = 0 AND d.rowid IN
   (SELECT o.rowid FROM {deferred} o WHERE o.lane = l.lane AND o.id > ?2
    AND {due} ORDER BY o.lane, o.id LIMIT {LIMIT}))
 ORDER BY id LIMIT {LIMIT}`},
		FindPending: `SELECT lane FROM {outbox} WHERE id = ?1
UNION ALL SELECT lane FROM {deferred} WHERE id = ?1`,
		LockLane:  `SELECT owner FROM {lanes} WHERE lane = ?1`,
		LockRelay: `SELECT CASE WHEN ended = 0 AND expires_at > {now} THEN 1 ELSE 0 END FROM {relays} WHERE owner = ?1`,
		ClaimHot: `UPDATE {outbox} AS o SET claim_token = ?4, claim_until = ?5
 WHERE o.lane = ?2 AND o.id = ?3
    AND {ready}`,
		ClaimDeferred: `UPDATE {deferred} AS o SET claim_token = ?4, claim_until = ?5
 WHERE o.lane = ?2 AND o.id = ?3
    AND {due}`,
		RenewHot: `UPDATE {outbox} SET claim_until = max(claim_until, ?4)
 WHERE id = ?2 AND claim_token = ?3 AND claim_until > ?1`,
		RenewDeferred: `UPDATE {deferred} SET claim_until = max(claim_until, ?4)
 WHERE id = ?2 AND claim_token = ?3 AND claim_until > ?1`,
		DoneHot: `DELETE FROM {outbox}
 WHERE id = ?2 AND claim_token = ?3 AND claim_until > ?1`,
		DoneDeferred: `DELETE FROM {deferred}
 WHERE id = ?2 AND claim_token = ?3 AND claim_until > ?1`,
		ClaimedHot: `SELECT lane, attempts, CASE WHEN key_hash IS NULL THEN 0 ELSE 1 END FROM {outbox}
 WHERE id = ?2 AND claim_token = ?3 AND claim_until > ?1`,
		ClaimedDeferred: `SELECT lane, attempts, CASE WHEN key_hash IS NULL THEN 0 ELSE 1 END FROM {deferred}
 WHERE id = ?2 AND claim_token = ?3 AND claim_until > ?1`,
		UnclaimHot:      `UPDATE {outbox} SET claim_token = NULL, claim_until = NULL WHERE lane = ?1 AND id = ?2`,
		UnclaimDeferred: `UPDATE {deferred} SET claim_token = NULL, claim_until = NULL WHERE lane = ?1 AND id = ?2`,
		CountHot: `SELECT count(*), min(o.created_at) FROM {outbox} o WHERE o.lane BETWEEN ?2 AND ?3
    AND {ready}`,
		CountDeferred: `SELECT count(*), min(o.created_at) FROM {deferred} o WHERE o.lane BETWEEN ?2 AND ?3
    AND {due}`,
		Oldest: `SELECT min(created_at) FROM (
  SELECT d.created_at FROM {lanes} l CROSS JOIN {outbox} d WHERE d.pos IN
   (SELECT o.pos FROM {outbox} o WHERE o.lane = l.lane
    AND {ready} ORDER BY o.lane, o.pos LIMIT 128)
  UNION ALL
  SELECT d.created_at FROM {lanes} l CROSS JOIN {deferred} d WHERE d.rowid IN
   (SELECT o.rowid FROM {deferred} o WHERE o.lane = l.lane
    AND {due} ORDER BY o.lane, o.due_at, o.pos LIMIT 128))`,

		LiveRelays: `SELECT owner, routes, expires_at, {now} FROM {relays} WHERE ended = 0 AND expires_at > {now}`,
		HeldLanes:  `SELECT lane FROM {lanes} WHERE owner = ?1`,
		LockLanes:  `SELECT l.lane FROM {u:lane+epoch} CROSS JOIN {lanes} l ON l.lane = u.lane AND l.epoch = u.epoch WHERE l.owner = ?3 ORDER BY l.lane`,
		LockOwned:  `SELECT lane FROM {lanes} WHERE owner = ?1 ORDER BY lane`,
		Candidates: `SELECT l.lane, l.owner, CASE WHEN r.owner IS NULL THEN 0 ELSE 1 END FROM {lanes} l LEFT JOIN {relays} r ON r.owner = l.owner
 WHERE l.lane BETWEEN ?1 AND ?2 AND (l.owner IS NULL OR r.owner IS NULL OR r.ended <> 0 OR r.expires_at <= {now})
 ORDER BY l.lane LIMIT ?3`,
		LockOwner:    `SELECT expires_at, ended FROM {relays} WHERE owner = ?1`,
		Owners:       `SELECT r.owner FROM ` + rowsSQLite("owner:id") + ` CROSS JOIN {relays} r ON r.owner = u.owner`,
		LockOwners:   `SELECT r.owner, r.expires_at, r.ended FROM ` + rowsSQLite("owner:id") + ` CROSS JOIN {relays} r ON r.owner = u.owner ORDER BY r.owner`,
		AddRelay:     `INSERT INTO {relays} (owner, expires_at, routes, ended) VALUES (?1, ?2, ?3, ?4)`,
		RenewRelay:   `UPDATE {relays} SET expires_at = max(expires_at, ?2), routes = ?3, ended = ?4 WHERE owner = ?1`,
		EndRelays:    `UPDATE {relays} SET ended = 1 WHERE owner IN (SELECT u.owner FROM ` + rowsSQLite("owner:id") + `)`,
		ReleaseLanes: `UPDATE {lanes} SET owner = NULL, unclean = 0 WHERE lane IN (SELECT u.lane FROM {u:lane}) AND owner = ?3`,
		TakeLanes: `UPDATE {lanes} SET unclean = CASE WHEN owner IS NULL THEN 0 ELSE 1 END, owner = ?3, epoch = epoch + 1
 WHERE lane IN (SELECT u.lane FROM {u:lane})`,
		Leases: `SELECT l.lane, l.route, l.epoch, l.config, l.unclean, m.tried_to,
  EXISTS (SELECT 1 FROM {dead} d WHERE d.lane = l.lane AND d.key_hash IS NOT NULL)
  FROM {lanes} l JOIN {lane_marks} m ON m.lane = l.lane
 WHERE l.owner = ?1 ORDER BY l.lane`,
		ForgetRelays: `DELETE FROM {relays} WHERE expires_at < ?1 AND owner NOT IN (SELECT l.owner FROM {lanes} l WHERE l.owner IS NOT NULL)`,

		Fence: `SELECT l.lane, l.config FROM {u:lane+epoch} CROSS JOIN {lanes} l ON l.lane = u.lane AND l.epoch = u.epoch WHERE l.owner = ?3 ORDER BY l.lane`,
		ReadRanges: limited{`SELECT u.ord, {o.row}, {claimed}, NULL, NULL, NULL
  FROM ` + rowsSQLite("lane", "after", "upto") + ` CROSS JOIN {outbox} o
 WHERE o.pos IN (SELECT p.pos FROM {outbox} p INDEXED BY {=outbox_lane} WHERE p.lane = u.lane AND p.pos > u.after AND p.pos <= u.upto
                  ORDER BY p.pos LIMIT {LIMIT})`},
		SweepRanges: limited{`SELECT u.ord, o.lane, o.pos, o.id, o.key_hash, coalesce(length(o.body), 0)
  FROM ` + rowsSQLite("lane", "after", "upto") + ` CROSS JOIN {outbox} o
 WHERE o.pos IN (SELECT p.pos FROM {outbox} p INDEXED BY {=outbox_lane} WHERE p.lane = u.lane AND p.pos > u.after AND p.pos <= u.upto
                  ORDER BY p.pos LIMIT {LIMIT})`},
		ReadKeys: limited{`WITH u AS MATERIALIZED (SELECT * FROM ` + rowsSQLite("lane", "after", "upto", "key_hash:null", "ordering_key:bytes") + `)
SELECT u.ord, {o.row}, {claimed}, NULL, NULL, NULL FROM u CROSS JOIN {outbox} o
 WHERE u.key_hash IS NOT NULL AND o.pos IN
  (SELECT p.pos FROM {outbox} p INDEXED BY {=outbox_key} WHERE p.lane = u.lane AND p.key_hash = u.key_hash AND p.ordering_key = u.ordering_key
      AND p.pos > u.after AND p.pos <= u.upto ORDER BY p.pos LIMIT {LIMIT})
UNION ALL
SELECT u.ord, {o.row}, {claimed}, NULL, NULL, NULL FROM u CROSS JOIN {outbox} o
 WHERE u.key_hash IS NULL AND o.pos IN
  (SELECT p.pos FROM {outbox} p INDEXED BY {=outbox_lane} WHERE p.lane = u.lane AND p.pos > u.after AND p.pos <= u.upto
    ORDER BY p.pos LIMIT {LIMIT})`},
		SettleSpan: `DELETE FROM {outbox} WHERE pos BETWEEN ?1 AND ?2 AND id = substr(?3, (pos - ?1) * 26 + 1, 16)
   AND lane = CAST(substr(?3, (pos - ?1) * 26 + 17, 10) AS INTEGER)`,
		Settle:     `DELETE FROM {outbox} WHERE (pos, lane, id) IN (SELECT u.pos, u.lane, u.id FROM {u:row}) RETURNING id`,
		SettleKeys: `DELETE FROM {outbox} WHERE (pos, lane, id) IN (SELECT u.pos, u.lane, u.id FROM {u:row}) RETURNING id, key_hash, ordering_key`,
		Lettered: `SELECT u.lane, u.key_hash FROM ` + rowsSQLite("lane", "key_hash") + `
 WHERE EXISTS (SELECT 1 FROM {dead} d WHERE d.lane = u.lane AND d.key_hash IS NOT NULL AND d.key_hash = u.key_hash)`,
		LettersFrom: `SELECT u.lane, u.key_hash, d.pos FROM ` + rowsSQLite("lane", "key_hash", "below") + ` CROSS JOIN {dead} d
 WHERE d.rowid = (SELECT p.rowid FROM {dead} p WHERE p.lane = u.lane AND p.key_hash IS NOT NULL AND p.key_hash = u.key_hash AND p.pos < u.below
                   ORDER BY p.pos DESC LIMIT 1 OFFSET 1023)`,
		CountLater: `UPDATE {dead} AS d SET later_out = d.later_out + u.more
  FROM ` + rowsSQLite("lane", "key_hash", "ordering_key:bytes", "start", "below", "more") + `
 WHERE d.lane = u.lane AND d.key_hash IS NOT NULL AND d.key_hash = u.key_hash AND d.pos >= u.start AND d.pos < u.below AND d.ordering_key = u.ordering_key`,
		FindHot:      `SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key FROM {u:row} CROSS JOIN {outbox} o ON o.pos = u.pos AND o.lane = u.lane AND o.id = u.id`,
		FindDeferred: `SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key FROM {u:row} CROSS JOIN {deferred} o ON o.lane = u.lane AND o.id = u.id AND o.pos = u.pos`,
		DropDeferred: `DELETE FROM {deferred} WHERE (lane, id) IN (SELECT u.lane, u.id FROM {u:lane+id})`,
		FailHot: `UPDATE {outbox} AS o SET attempts = u.attempts, last_error = u.reason, retry_at = u.retry_at, first_failed_at = COALESCE(o.first_failed_at, {now})
  FROM {u:fail} WHERE o.lane = u.lane AND o.id = u.id`,
		FailDeferred: `UPDATE {deferred} AS o SET attempts = u.attempts, last_error = u.reason, retry_at = u.retry_at, first_failed_at = COALESCE(o.first_failed_at, {now}),
   due_at = CASE WHEN o.due_at IS NULL THEN NULL ELSE max(COALESCE(o.deliver_at, 0), COALESCE(u.retry_at, 0)) END
  FROM {u:fail} WHERE o.lane = u.lane AND o.id = u.id`,
		Defer: `INSERT INTO {deferred} (pos, {msg}, {state}, due_at)
SELECT o.pos, {o.msg}, {o.state}, CASE WHEN u.aside <> 0 THEN NULL ELSE {due_at} END
  FROM ` + rowsSQLite("lane", "id:id", "aside") + ` CROSS JOIN {outbox} o WHERE o.lane = u.lane AND o.id = u.id
ON CONFLICT (lane, id) DO NOTHING RETURNING lane, id`,
		BuryHot: `INSERT INTO {dead} (pos, {msg}, attempts, last_error, first_failed_at, reason, died_at)
SELECT o.pos, {o.msg}, u.attempts, u.reason, o.first_failed_at, u.reason, {now}
  FROM {u:bury} CROSS JOIN {outbox} o ON o.lane = u.lane AND o.id = u.id`,
		BuryDeferred: `INSERT INTO {dead} (pos, {msg}, attempts, last_error, first_failed_at, reason, died_at)
SELECT o.pos, {o.msg}, u.attempts, u.reason, o.first_failed_at, u.reason, {now}
  FROM {u:bury} CROSS JOIN {deferred} o ON o.lane = u.lane AND o.id = u.id`,
		DropDead: `DELETE FROM {dead} WHERE id IN (SELECT u.id FROM {u:id})`,
		Marks:    `UPDATE {lane_marks} AS k SET tried_to = u.pos FROM {u:lane+pos} WHERE k.lane = u.lane AND k.tried_to < u.pos`,
		Due: limited{`SELECT o.lane, o.id, o.ordering_key FROM {u:lane} CROSS JOIN {deferred} o
 WHERE o.rowid IN (SELECT d.rowid FROM {deferred} d WHERE d.lane = u.lane AND d.due_at <= {now} AND (d.claim_until IS NULL OR d.claim_until <= {now})
                    ORDER BY d.lane, d.due_at, d.pos, d.rowid LIMIT {LIMIT})
 ORDER BY u.ord, o.due_at, o.pos, o.rowid LIMIT ?3`},
		Promote: `INSERT INTO {outbox} ({msg}, {state})
SELECT {d.msg}, d.attempts, d.last_error, d.first_failed_at, d.retry_at, d.claim_token, d.claim_until
  FROM {u:lane+id} CROSS JOIN {deferred} d WHERE d.lane = u.lane AND d.id = u.id ORDER BY u.ord
ON CONFLICT (lane, id) DO NOTHING RETURNING {row}`,
		NextDue: `SELECT min(due_at) FROM (SELECT (
  SELECT o.due_at FROM {deferred} o WHERE o.lane = u.lane AND o.due_at IS NOT NULL
     AND (o.claim_until IS NULL OR o.claim_until <= max({now}, o.due_at))
   ORDER BY o.lane, o.due_at, o.pos LIMIT 1) AS due_at FROM {u:lane})`,
		NextClaimed: `SELECT min(o.claim_until) FROM {u:lane} CROSS JOIN {deferred} o ON o.lane = u.lane AND o.due_at <= {now} AND o.claim_until > {now}`,

		Park: `INSERT INTO {parked_keys} AS k (lane, key_hash, ordering_key, why, parked_by, parked_at)
SELECT u.lane, u.key_hash, u.ordering_key, u.why, ?3, {now} FROM ` + rowsSQLite("lane", "key_hash", "ordering_key:bytes", "why:text") + ` WHERE true
ON CONFLICT (lane, key_hash, ordering_key) DO UPDATE
   SET unparking = 0, why = excluded.why, parked_by = excluded.parked_by, parked_at = excluded.parked_at WHERE k.unparking <> 0`,
		Unpark: `UPDATE {parked_keys} SET unparking = 1 WHERE lane = ?1 AND key_hash = ?2 AND ordering_key = ?3 AND unparking = 0`,
		Lift: `DELETE FROM {parked_keys} AS k WHERE k.unparking <> 0
   AND (k.lane, k.key_hash, k.ordering_key) IN (SELECT u.lane, u.key_hash, u.ordering_key FROM {u:key})
   AND NOT EXISTS (SELECT 1 FROM {deferred} o WHERE o.lane = k.lane AND o.key_hash = k.key_hash AND o.ordering_key = k.ordering_key AND o.due_at IS NULL)
RETURNING lane, ordering_key`,
		Parked: `SELECT lane, key_hash, ordering_key, unparking, parked_by, parked_at, why FROM {parked_keys}`,
		ParkedRows: limited{`SELECT o.lane, o.id FROM {u:key} CROSS JOIN {outbox} o
 WHERE o.pos IN (SELECT p.pos FROM {outbox} p INDEXED BY {=outbox_key} WHERE p.lane = u.lane AND p.key_hash = u.key_hash AND p.ordering_key = u.ordering_key
                  ORDER BY p.pos LIMIT {LIMIT})
 LIMIT ?3`},
		AsideRows: limited{`SELECT o.lane, o.id FROM {u:key} CROSS JOIN {deferred} o
 WHERE o.rowid IN (SELECT p.rowid FROM {deferred} p INDEXED BY {=deferred_parked} WHERE p.lane = u.lane AND p.key_hash = u.key_hash AND p.ordering_key = u.ordering_key AND p.due_at IS NULL
                    ORDER BY p.pos LIMIT {LIMIT})
 LIMIT ?3`},
		Return: `INSERT INTO {outbox} (pos, {msg}, {state})
SELECT CASE WHEN EXISTS (SELECT 1 FROM {outbox} p WHERE p.pos = d.pos) THEN NULL ELSE d.pos END,
   {d.msg}, d.attempts, d.last_error, d.first_failed_at, d.retry_at, d.claim_token, d.claim_until
  FROM {u:lane+id} CROSS JOIN {deferred} d WHERE d.lane = u.lane AND d.id = u.id ORDER BY d.lane, d.pos
ON CONFLICT (lane, id) DO NOTHING`,
		SeenConfig:  `UPDATE {lane_marks} AS k SET config_seen = u.config FROM ` + rowsSQLite("lane", "config") + ` WHERE k.lane = u.lane AND k.config_seen < u.config`,
		RaiseConfig: `UPDATE {lanes} SET config = config + 1 WHERE lane IN (SELECT u.lane FROM {u:lane})`,
		CountAside:  `SELECT count(*) FROM {deferred} WHERE lane BETWEEN ?1 AND ?2`,
		CountParked: `SELECT count(*) FROM {parked_keys} WHERE lane BETWEEN ?1 AND ?2`,
		Audit:       `INSERT INTO {audit} (at, done_by, what, how_many, detail) VALUES ({now}, ?1, ?2, ?3, ?4)`,
		LaneOwners:  `SELECT lane, owner FROM {lanes} WHERE owner IS NOT NULL`,
		ListDead: limited{`SELECT pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers,
    CASE WHEN ?3 <> 0 THEN NULL ELSE body END,
    deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions,
    correlation_id, causation_id, traceparent, tracestate, attempts, last_error, NULL, first_failed_at, reason, died_at, later_out
  FROM {dead} WHERE (died_at, id) > (?1, ?2) ORDER BY died_at, id LIMIT {LIMIT}`},
		ListDeadOf: limited{`SELECT pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers,
    CASE WHEN ?3 <> 0 THEN NULL ELSE body END,
    deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions,
    correlation_id, causation_id, traceparent, tracestate, attempts, last_error, NULL, first_failed_at, reason, died_at, later_out
  FROM {dead} WHERE transport = ?4 AND (died_at, id) > (?1, ?2) ORDER BY died_at, id LIMIT {LIMIT}`},
		CountDead:   `SELECT count(*) FROM {dead}`,
		CountDeadOf: `SELECT count(*) FROM {dead} WHERE transport = ?1`,
		Confirmed: `SELECT count(*) FROM {u:lane} CROSS JOIN {lanes} l ON l.lane = u.lane
  JOIN {lane_marks} m ON m.lane = l.lane JOIN {relays} r ON r.owner = l.owner
 WHERE m.config_seen < l.config AND r.ended = 0 AND r.expires_at > {now}`,
		LanesOfDead: `SELECT d.lane FROM {u:id} CROSS JOIN {dead} d ON d.id = u.id`,
		LockDead:    `SELECT d.id, d.lane, d.transport, d.ordering_key, d.later_out FROM {u:id} CROSS JOIN {dead} d ON d.id = u.id`,
		Replay: `INSERT INTO {outbox} (pos, {msg})
SELECT CASE WHEN d.pos = 0 OR EXISTS (SELECT 1 FROM {outbox} p WHERE p.pos = d.pos) THEN NULL ELSE d.pos END, {d.msg}
  FROM {u:id} CROSS JOIN {dead} d WHERE d.id = u.id ORDER BY d.lane, d.pos
ON CONFLICT (lane, id) DO NOTHING RETURNING id`,

		Reserve: `INSERT INTO {inbox} AS i (consumer, message_id, processed_at, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (consumer, message_id) DO UPDATE
   SET processed_at = excluded.processed_at, expires_at = excluded.expires_at, token = NULL
 WHERE i.expires_at <= excluded.processed_at`,
		Processed: `SELECT count(*) FROM {inbox} WHERE consumer = ?2 AND message_id = ?3 AND token IS NULL AND (expires_at IS NULL OR expires_at > ?1)`,
		MarkInbox: `INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (consumer, message_id) DO UPDATE
   SET processed_at = excluded.processed_at, expires_at = excluded.expires_at, token = NULL`,
		ClaimInbox: `INSERT INTO {inbox} AS i (consumer, message_id, processed_at, expires_at, token) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (consumer, message_id) DO UPDATE
   SET processed_at = excluded.processed_at, expires_at = excluded.expires_at, token = excluded.token
 WHERE i.expires_at <= excluded.processed_at`,
		InboxToken: `SELECT token FROM {inbox} WHERE consumer = ?1 AND message_id = ?2`,
		RenewInbox: `UPDATE {inbox} SET expires_at = max(expires_at, ?4)
 WHERE consumer = ?1 AND message_id = ?2 AND token = ?5 AND expires_at > ?3`,
		CompleteInbox: `UPDATE {inbox} SET processed_at = ?3, expires_at = ?4, token = NULL
 WHERE consumer = ?1 AND message_id = ?2 AND token = ?5`,
		ReleaseInbox: `DELETE FROM {inbox} WHERE consumer = ?1 AND message_id = ?2 AND token = ?3`,
		PurgeInbox:   limited{`DELETE FROM {inbox} WHERE rowid IN (SELECT rowid FROM {inbox} WHERE expires_at <= ?1 ORDER BY expires_at LIMIT {LIMIT})`},
	},
}

// rowsSQLite is the table u of the rows that packedRows has written: where each
// begins is a JSON list in the first argument, their bytes are the second. ord is a
// row's number from 1. A column is a number; one that may be NULL is marked :null,
// others :id, :bytes and :text.
func rowsSQLite(columns ...string) string {
	var b strings.Builder
	b.WriteString("(SELECT ")
	for i, name := range columns {
		slot := func(from, bytes int) string {
			return fmt.Sprintf("substr(?2, value + %d, %d)", i*slotSQLite+from, bytes)
		}
		number := func(from, bytes int) string { return "CAST(" + slot(from, bytes) + " AS INTEGER)" }
		// An empty slot has no place, which is NULL, and so are the bytes.
		apart := fmt.Sprintf("substr(?2, value + nullif(%s, 0), %s)", number(0, slotSQLite/2), number(slotSQLite/2, slotSQLite/2))
		name, kind, _ := strings.Cut(name, ":")
		switch kind {
		case "":
			b.WriteString(number(0, slotSQLite))
		case "null":
			fmt.Fprintf(&b, "CAST(nullif(%s, zeroblob(%d)) AS INTEGER)", slot(0, slotSQLite), slotSQLite)
		case "id":
			b.WriteString(slot(0, len(outbox.ID{})))
		case "bytes":
			b.WriteString(apart)
		case "text":
			b.WriteString("CAST(" + apart + " AS TEXT)")
		}
		b.WriteString(" AS " + name + ", ")
	}
	b.WriteString("key + 1 AS ord FROM json_each(?1)) u")
	return b.String()
}

// slotSQLite is how many bytes of a row belong to a column: a number in digits; an
// id; or two numbers of as many digits, where in the row its bytes are and how many,
// which stand behind all slots. The slot of NULL is left empty.
const slotSQLite = 20

// namedSQLite is {u:row}: positions as a list, and the rest of each row in bytes:
// less to take apart than packedRows.
func namedSQLite(list []outbox.Settlement, which []int) []any {
	pos, rest := []byte{'['}, make([]byte, 0, nameSQLite*len(which))
	for n, i := range which {
		if n > 0 {
			pos = append(pos, ',')
		}
		pos = strconv.AppendInt(pos, list[i].Pos, 10)
		rest = appendName(rest, &list[i])
	}
	return []any{string(append(pos, ']')), rest}
}

// spanSQLite is the same for rows that lie close together, ordered by position:
// the first and the last of them, and for every position between what row is
// meant, if any. The table is walked once, without a list that is looked into
// for each row.
func spanSQLite(list []outbox.Settlement, which []int) []any {
	first, last := list[which[0]].Pos, list[which[len(which)-1]].Pos
	rest := make([]byte, nameSQLite*(last-first+1))
	for _, i := range which {
		appendName(rest[:nameSQLite*(list[i].Pos-first)], &list[i])
	}
	return []any{first, last, rest}
}

// nameSQLite is how many bytes tell which row a settlement means, beside its
// position: its id, and its lane in digits.
const nameSQLite = 16 + 10

func appendName(b []byte, t *outbox.Settlement) []byte {
	b = append(b, t.ID[:]...)
	digits := [10]byte{}
	for i, n := len(digits)-1, t.Lane; i >= 0; i, n = i-1, n/10 {
		digits[i] = '0' + byte(n%10)
	}
	return append(b, digits[:]...)
}

// lackingSQLite: before SQLite 3.38 the JSON functions were left out of a build
// that did not ask for them.
func lackingSQLite(err error) string {
	if !strings.Contains(err.Error(), "no such table: json_each") {
		return ""
	}
	return "this SQLite was built without JSON1, its JSON functions: use SQLite 3.38 or later, or build with SQLITE_ENABLE_JSON1, which is the tag sqlite_json of mattn/go-sqlite3"
}

// readySQLite asks for the JSON functions, and for UTF-8: where text is UTF-16 the
// digits of a table parameter are read as another number, and rows are not found.
func readySQLite(ctx context.Context, c Querier) error {
	var seven intColumn
	if err := queryRow(ctx, c, "SELECT CAST(x'37' AS INTEGER) FROM json_each('[0]')", nil, &seven); err != nil {
		return err
	}
	if seven.Int64 != 7 {
		return fmt.Errorf("%w: the text of this database is in UTF-16: use a file in UTF-8, which PRAGMA encoding says", outbox.ErrSchema)
	}
	return nil
}

func staleSQLite(err error) bool {
	return strings.Contains(err.Error(), "no such index") || strings.Contains(err.Error(), "no such column")
}

// busySQLite: another connection has the write lock (SQLITE_BUSY, 5, with its
// extended codes 261, 517 and 773) or a shared cache is locked (6).
func busySQLite(err error) bool {
	if code := codeSQLite(err); code != 0 {
		return code == 5 || code == 6
	}
	return strings.Contains(err.Error(), "database is locked") || strings.Contains(err.Error(), "database table is locked")
}

// codeSQLite is the primary result code, 0 if the driver does not tell. Errors of
// modernc.org/sqlite have a method for it, those of mattn/go-sqlite3 a field.
func codeSQLite(err error) int {
	var e interface{ Code() int }
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			continue
		}
		if f, ok := v.Type().FieldByName("Code"); ok && len(f.Index) == 1 && v.Field(f.Index[0]).CanInt() {
			return int(v.Field(f.Index[0]).Int()) & 0xff
		}
	}
	return 0
}

// prepareSQLite switches the engine's own waiting off: it sleeps up to 100 ms
// between two looks at the lock, which loses against busy producers until a
// lease is gone. The store looks again every few milliseconds.
//
// A settle of some thousand rows fits the cache, and what would undo a statement
// of it stays in memory: both would be written to files else. Each of them writes
// nearly as many pages as bring a checkpoint about, which syncs twice: four times
// as many, 16 MiB, are as good.
func prepareSQLite(ctx context.Context, c Querier, purpose string) (func(context.Context) error, error) {
	pragmas := []struct {
		name  string
		value int64
	}{{"busy_timeout", 0}, {"cache_size", -16 << 10}, {"temp_store", 2}, {"wal_autocheckpoint", 4000}}
	var undo strings.Builder
	for _, p := range pragmas {
		var old int64
		if err := queryRow(ctx, c, "PRAGMA "+p.name, nil, &old); err != nil {
			return nil, err
		}
		if _, err := c.Exec(ctx, fmt.Sprintf("PRAGMA %s = %d", p.name, p.value)); err != nil {
			return nil, err
		}
		fmt.Fprintf(&undo, "PRAGMA %s = %d;", p.name, old)
	}
	return func(ctx context.Context) error {
		_, err := c.Exec(ctx, undo.String())
		return err
	}, nil
}

// writeAhead puts the file into WAL mode, where readers and the writer do not
// wait for each other. Databases in memory have modes of their own.
func writeAhead(ctx context.Context, c Querier) error {
	var mode string
	if err := queryRow(ctx, c, "PRAGMA journal_mode", nil, &mode); err != nil {
		return err
	}
	if mode == "wal" || mode == "memory" {
		return nil
	}
	return queryRow(ctx, c, "PRAGMA journal_mode = WAL", nil, &mode)
}

// packedRows writes a table parameter as rowsSQLite reads it. A JSON list of lists
// would be taken apart again for each column, and cost ten times as much.
type packedRows struct {
	columns int
	at      int    // the next column
	row     int    // where its row begins
	starts  []byte // a list of all such places, the first byte being 1
	buf     []byte
}

func (p *packedRows) Grow(rows int) { p.buf = slices.Grow(p.buf, slotSQLite*p.columns*rows) }

// next is the slot of the next column.
func (p *packedRows) next() []byte {
	if p.at == 0 {
		p.row = len(p.buf)
		p.starts = strconv.AppendInt(append(p.starts, ','), int64(p.row)+1, 10)
		p.buf = append(p.buf, make([]byte, slotSQLite*p.columns)...)
	}
	from := p.row + slotSQLite*p.at
	p.at = (p.at + 1) % p.columns
	return p.buf[from : from : from+slotSQLite]
}

func (p *packedRows) Int(v int64) { strconv.AppendInt(p.next(), v, 10) }

// Hint is for engines that give some.
func (p *packedRows) Hint(uint64) { p.Null() }

func (p *packedRows) Null() { p.next() }

func (p *packedRows) Text(s string) {
	p.apart(p.next(), len(s))
	p.buf = append(p.buf, s...)
}

func (p *packedRows) Name(s string) { p.Text(s) }

func (p *packedRows) Bytes(v []byte) {
	slot := p.next()
	if v == nil {
		return
	}
	p.apart(slot, len(v))
	p.buf = append(p.buf, v...)
}

// apart writes where the value is that comes next, and its length.
func (p *packedRows) apart(slot []byte, n int) {
	strconv.AppendInt(slot, int64(len(p.buf)-p.row), 10)
	strconv.AppendInt(slot[slotSQLite/2:slotSQLite/2], int64(n), 10)
}

func (p *packedRows) ID(id outbox.ID) { copy(p.next()[:len(id)], id[:]) }

func (p *packedRows) Args() []any {
	if len(p.starts) == 0 {
		return []any{"[]", []byte{}}
	}
	p.starts[0] = '['
	return []any{string(append(p.starts, ']')), p.buf}
}
