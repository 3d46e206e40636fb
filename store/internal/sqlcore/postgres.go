package sqlcore

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
)

// PostgreSQL 13 and later.
//
// Every parameter has its type in the text, so that drivers need not guess.
// Lists go over as array literals, which every driver can send as text.
var PostgreSQL = &postgresDialect

var postgresDialect = Dialect{
	name:   "PostgreSQL",
	engine: schema.PostgreSQL,
	// Whatever the role's default is: at REPEATABLE READ a statement after a
	// lock would not see what the lock was waiting for, and where transactions are
	// read-only by default half of a relay would work.
	begin:     "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; " + settingsPostgres + keysPostgres,
	beginRead: "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; " + settingsPostgres,
	rows:      func(columns int) RowWriter { return newArrays(columns) },
	id:        func(id outbox.ID) any { return id.String() },
	lanes:     func(first, n int64) any { return numbers('{', first, n, '}') },
	missing:   func(err error) bool { s := sqlState(err); return s == "42P01" || s == "3F000" },
	// Deadlock and serialization failure: PostgreSQL has rolled back.
	busy:  func(err error) bool { s := sqlState(err); return s == "40P01" || s == "40001" },
	taken: func(err error) bool { return sqlState(err) == "23505" },
	refused: func(err error) bool {
		// Data exception, constraint, access rule and, from triggers, RAISE and
		// with check option.
		s := sqlState(err)
		return len(s) == 5 && slices.Contains([]string{"22", "23", "42", "44", "P0"}, s[:2])
	},
	denied:  func(err error) bool { return sqlState(err) == "42501" },
	prepare: preparePostgres,
	ready:   readyPostgres,
	least:   map[string][]int{"PostgreSQL": {13}},
	macros: []string{
		// As a sub-select it is worked out once and can bound an index scan.
		"{now}", "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		"{unparked}", `(o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM {parked_keys} k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key))`,
		"{ready}", `(o.deliver_at IS NULL OR o.deliver_at <= $1::bigint) AND (o.retry_at IS NULL OR o.retry_at <= $1::bigint)
    AND (o.claim_until IS NULL OR o.claim_until <= $1::bigint) AND {unparked}`,
		"{due}", `o.due_at <= $1::bigint AND (o.claim_until IS NULL OR o.claim_until <= $1::bigint) AND {unparked}`,
		"{every_lane}", "ANY (ARRAY(SELECT lane FROM {lanes}))",
		"{one}", `$1::integer, $2::uuid, $3::bigint, $4::bytea, $5::text, $6::text, $7::text, $8::text, $9::bytea, $10::bytea,
  $11::bigint, $12::bigint, $13::text, $14::smallint, $15::text, $16::text, $17::bigint, $18::text, $19::bytea,
  $20::text, $21::text, $22::text, $23::text`,
		"{many}", `unnest($1::integer[], $2::uuid[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::bytea[],
  $11::bigint[], $12::bigint[], $13::text[], $14::smallint[], $15::text[], $16::text[], $17::bigint[], $18::text[], $19::bytea[],
  $20::text[], $21::text[], $22::text[], $23::text[]) WITH ORDINALITY AS u({msg}, ord)`,
		"{state}", "attempts, last_error, first_failed_at, retry_at, claim_token, claim_until",
		"{o.state}", "o.attempts, o.last_error, o.first_failed_at, o.retry_at, o.claim_token, o.claim_until",
		"{probe}", probe("$4", "$5", "$6"), "{probe of keys}", probe("$6", "$7", "$8"),
		// EXISTS would be a hash of all positions, which takes a read of all rows.
		"{taken}", "(SELECT 1 FROM {outbox} p WHERE p.lane = d.lane AND p.pos = d.pos LIMIT 1) IS NOT NULL",
		"{claimed}", "CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > {now} THEN 1 ELSE 0 END",
	},
	texts: texts{
		Version:  `SELECT version()`,
		Absent:   `SELECT t.name FROM (VALUES ` + eachTable("('%s', to_regclass({'%[1]s}))", ", ") + `) AS t(name, place) WHERE t.place IS NULL`,
		ReadOnly: `SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 1 ELSE 0 END`,
		// A right on some columns counts: somebody has thought about them. A schema of the
		// search path that may not be used is passed over without a word; that is no harm
		// where tables are seen in another.
		Rights: `SELECT n.nspname::text, 'SCHEMA ' || quote_ident(n.nspname), 'USAGE', quote_ident(current_user)
  FROM pg_catalog.pg_namespace n WHERE NOT has_schema_privilege(n.oid, 'USAGE') AND (n.nspname = {named schema} OR {named schema} = '' AND to_regclass({'meta}) IS NULL
    AND n.nspname IN (SELECT CASE s.name WHEN '$user' THEN current_user ELSE s.name END
                        FROM (SELECT btrim(p.part, ' "') AS name FROM unnest(string_to_array(current_setting('search_path'), ',')) AS p(part)) s)
    AND EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = {~meta}))
UNION ALL
(SELECT u.place, CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END || c.oid::regclass::text, u.privilege, quote_ident(current_user)
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(place, privilege, ord)
  JOIN pg_catalog.pg_class c ON c.relname = u.place JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND {visible}
 WHERE NOT CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, u.privilege)
                WHEN u.privilege = 'DELETE' THEN has_table_privilege(c.oid, u.privilege)
                ELSE has_any_column_privilege(c.oid, u.privilege) END
 ORDER BY u.ord)`,
		HasMeta:   `SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass({'meta})`,
		HasSchema: `SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = $1::text`,
		Where:     `SELECT n.nspname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass({'outbox})`,
		Lock: `SELECT pg_advisory_xact_lock($1::bigint # hashtextextended(COALESCE(NULLIF({named schema}, ''),
  (SELECT n.nspname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass({'meta})), current_schema()::text, ''), 0))`,
		Meta:     `SELECT name, value FROM {meta}`,
		Routes:   `SELECT name, first_lane, ordered_lanes, unordered_lanes FROM {routes} ORDER BY first_lane`,
		AddRoute: `INSERT INTO {routes} (name, first_lane, ordered_lanes, unordered_lanes) VALUES ($1::text, $2::integer, $3::integer, $4::integer)`,
		AddLanes: `INSERT INTO {lanes} (lane, is_ordered, route) SELECT u.lane, u.is_ordered, $3::text FROM unnest($1::integer[], $2::smallint[]) AS u(lane, is_ordered)`,
		AddMarks: `INSERT INTO {lane_marks} (lane) SELECT u.lane FROM unnest($1::integer[]) AS u(lane)`,
		Now:      `SELECT {now}`,

		EnlistOne: `INSERT INTO {outbox} ({msg})
SELECT {one}
 WHERE {pending_id}($24::integer[], ARRAY[$2::uuid]) IS NULL
ON CONFLICT (lane, id) DO NOTHING`,
		// Without a column of u and without volatile functions the condition is
		// worked out once.
		EnlistMany: `INSERT INTO {outbox} ({msg})
SELECT {u.msg} FROM {many}
 WHERE {pending_id}($24::integer[], $2::uuid[]) IS NULL ORDER BY u.ord
ON CONFLICT (lane, id) DO NOTHING RETURNING id`,
		QueueOne:  `INSERT INTO {outbox} ({msg}) VALUES ({one})`,
		QueueMany: `INSERT INTO {outbox} ({msg}) SELECT {u.msg} FROM {many} ORDER BY u.ord`,
		DeferOne: `INSERT INTO {deferred} ({msg}, due_at)
SELECT {one}, $11::bigint
 WHERE {pending_id}($24::integer[], ARRAY[$2::uuid]) IS NULL
ON CONFLICT (lane, id) DO NOTHING`,
		DeferMany: `INSERT INTO {deferred} ({msg}, due_at)
SELECT {u.msg}, u.deliver_at FROM {many}
 WHERE {pending_id}($24::integer[], $2::uuid[]) IS NULL ORDER BY u.ord
ON CONFLICT (lane, id) DO NOTHING RETURNING id`,
		UnlistHot:  `DELETE FROM {outbox} o USING unnest($1::integer[], $2::uuid[]) AS u(lane, id) WHERE o.lane = u.lane AND o.id = u.id`,
		PendingIDs: `SELECT u.id FROM unnest($1::uuid[]) AS u(id) WHERE {pending_id}($2::integer[], ARRAY[u.id]) IS NOT NULL`,

		ReadLane: limited{`SELECT {o.row} FROM (
  (SELECT {o.row} FROM {outbox} o WHERE o.lane = $2::integer AND o.id > $3::uuid AND o.key_hash IS NOT NULL
    AND {ready} ORDER BY o.lane, o.id LIMIT {LIMIT})
  UNION ALL
  (SELECT {o.row} FROM {deferred} o WHERE o.lane = $2::integer AND o.id > $3::uuid AND o.key_hash IS NOT NULL
    AND {due} ORDER BY o.lane, o.id LIMIT {LIMIT})) o
 ORDER BY o.id LIMIT {LIMIT}`},
		ReadUnordered: limited{`SELECT {o.row} FROM (
  SELECT {o.row} FROM (SELECT lane FROM {lanes} WHERE is_ordered = 0) l CROSS JOIN LATERAL
   (SELECT o.* FROM {outbox} o WHERE o.lane = l.lane AND o.id > $2::uuid
    AND {ready} ORDER BY o.lane, o.id LIMIT {LIMIT}) o
  UNION ALL
  SELECT {o.row} FROM (SELECT lane FROM {lanes} WHERE is_ordered = 0) l CROSS JOIN LATERAL
   (SELECT o.* FROM {deferred} o WHERE o.lane = l.lane AND o.id > $2::uuid
    AND {due} ORDER BY o.lane, o.id LIMIT {LIMIT}) o) o
 ORDER BY o.id LIMIT {LIMIT}`},
		FindPending: `SELECT lane FROM {outbox} WHERE lane = {every_lane} AND id = $1::uuid
UNION ALL SELECT lane FROM {deferred} WHERE lane = {every_lane} AND id = $1::uuid`,
		LockLane:  `SELECT owner FROM {lanes} WHERE lane = $1::integer FOR SHARE`,
		LockRelay: `SELECT CASE WHEN ended = 0 AND expires_at > {now} THEN 1 ELSE 0 END FROM {relays} WHERE owner = $1::uuid FOR SHARE`,
		ClaimHot: `UPDATE {outbox} o SET claim_token = $4::bytea, claim_until = $5::bigint
 WHERE o.lane = $2::integer AND o.id = $3::uuid
    AND {ready}`,
		// + 0: by its id, and not among all that is due.
		ClaimDeferred: `UPDATE {deferred} o SET claim_token = $4::bytea, claim_until = $5::bigint
 WHERE o.lane = $2::integer AND o.id = $3::uuid
    AND o.due_at + 0 <= $1::bigint AND (o.claim_until IS NULL OR o.claim_until <= $1::bigint) AND {unparked}`,
		RenewHot: `UPDATE {outbox} o SET claim_until = GREATEST(o.claim_until, $4::bigint)
 WHERE o.lane = {every_lane} AND o.id = $2::uuid AND o.claim_token = $3::bytea AND o.claim_until > $1::bigint`,
		RenewDeferred: `UPDATE {deferred} o SET claim_until = GREATEST(o.claim_until, $4::bigint)
 WHERE o.lane = {every_lane} AND o.id = $2::uuid AND o.claim_token = $3::bytea AND o.claim_until > $1::bigint`,
		DoneHot: `DELETE FROM {outbox} o
 WHERE o.lane = {every_lane} AND o.id = $2::uuid AND o.claim_token = $3::bytea AND o.claim_until > $1::bigint`,
		DoneDeferred: `DELETE FROM {deferred} o
 WHERE o.lane = {every_lane} AND o.id = $2::uuid AND o.claim_token = $3::bytea AND o.claim_until > $1::bigint`,
		ClaimedHot: `SELECT o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END FROM {outbox} o
 WHERE o.lane = {every_lane} AND o.id = $2::uuid AND o.claim_token = $3::bytea AND o.claim_until > $1::bigint FOR UPDATE OF o`,
		ClaimedDeferred: `SELECT o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END FROM {deferred} o
 WHERE o.lane = {every_lane} AND o.id = $2::uuid AND o.claim_token = $3::bytea AND o.claim_until > $1::bigint FOR UPDATE OF o`,
		UnclaimHot:      `UPDATE {outbox} SET claim_token = NULL, claim_until = NULL WHERE lane = $1::integer AND id = $2::uuid`,
		UnclaimDeferred: `UPDATE {deferred} SET claim_token = NULL, claim_until = NULL WHERE lane = $1::integer AND id = $2::uuid`,
		CountHot: `SELECT count(*), min(o.created_at) FROM {outbox} o WHERE o.lane BETWEEN $2::integer AND $3::integer
    AND {ready}`,
		CountDeferred: `SELECT count(*), min(o.created_at) FROM {deferred} o WHERE o.lane BETWEEN $2::integer AND $3::integer
    AND {due}`,
		Oldest: `SELECT min(x.created_at) FROM (
  SELECT o.created_at FROM {lanes} l CROSS JOIN LATERAL
   (SELECT o.created_at FROM {outbox} o WHERE o.lane = l.lane
    AND {ready} ORDER BY o.lane, o.pos LIMIT 128) o
  UNION ALL
  SELECT o.created_at FROM {lanes} l CROSS JOIN LATERAL
   (SELECT o.created_at FROM {deferred} o WHERE o.lane = l.lane
    AND {due} ORDER BY o.lane, o.due_at, o.pos LIMIT 128) o) x`,

		LiveRelays: `SELECT owner, routes, expires_at, {now} FROM {relays} WHERE ended = 0 AND expires_at > {now}`,
		HeldLanes:  `SELECT lane FROM {lanes} WHERE owner = $1::uuid`,
		LockLanes: `SELECT l.lane FROM {lanes} l JOIN unnest($1::integer[], $2::bigint[]) AS u(lane, epoch) ON l.lane = u.lane AND l.epoch = u.epoch
 WHERE l.owner = $3::uuid ORDER BY l.lane FOR UPDATE OF l`,
		LockOwned: `SELECT lane FROM {lanes} WHERE owner = $1::uuid ORDER BY lane FOR UPDATE`,
		Candidates: `SELECT l.lane, l.owner, CASE WHEN r.owner IS NULL THEN 0 ELSE 1 END FROM {lanes} l LEFT JOIN {relays} r ON r.owner = l.owner
 WHERE l.lane BETWEEN $1::integer AND $2::integer
   AND (l.owner IS NULL OR r.owner IS NULL OR r.ended <> 0 OR r.expires_at <= {now})
 ORDER BY l.lane LIMIT $3::integer FOR UPDATE OF l SKIP LOCKED`,
		LockOwner: `SELECT expires_at, ended FROM {relays} WHERE owner = $1::uuid FOR UPDATE`,
		Owners:    `SELECT r.owner FROM {relays} r JOIN unnest($1::uuid[]) AS u(owner) ON r.owner = u.owner`,
		LockOwners: `SELECT r.owner, r.expires_at, r.ended FROM {relays} r JOIN unnest($1::uuid[]) AS u(owner) ON r.owner = u.owner
 ORDER BY r.owner FOR UPDATE OF r SKIP LOCKED`,
		AddRelay:   `INSERT INTO {relays} (owner, expires_at, routes, ended) VALUES ($1::uuid, $2::bigint, $3::text, $4::smallint)`,
		RenewRelay: `UPDATE {relays} SET expires_at = GREATEST(expires_at, $2::bigint), routes = $3::text, ended = $4::smallint WHERE owner = $1::uuid`,
		EndRelays:  `UPDATE {relays} r SET ended = 1 FROM unnest($1::uuid[]) AS u(owner) WHERE r.owner = u.owner`,
		ReleaseLanes: `UPDATE {lanes} l SET owner = NULL, unclean = 0 FROM unnest($1::integer[]) AS u(lane)
 WHERE l.lane = u.lane AND l.owner = $2::uuid`,
		TakeLanes: `UPDATE {lanes} l SET unclean = CASE WHEN l.owner IS NULL THEN 0 ELSE 1 END, owner = $2::uuid, epoch = l.epoch + 1
  FROM unnest($1::integer[]) AS u(lane) WHERE l.lane = u.lane`,
		Leases: `SELECT l.lane, l.route, l.epoch, l.config, l.unclean, m.tried_to,
  CASE WHEN (SELECT 1 FROM {dead} d WHERE d.lane = l.lane AND d.key_hash IS NOT NULL ORDER BY d.lane, d.key_hash, d.pos LIMIT 1) IS NULL THEN 0 ELSE 1 END
  FROM {lanes} l JOIN {lane_marks} m ON m.lane = l.lane
 WHERE l.owner = $1::uuid ORDER BY l.lane`,
		ForgetRelays: `DELETE FROM {relays} WHERE owner IN (
  SELECT r.owner FROM {relays} r WHERE r.expires_at < $1::bigint AND NOT EXISTS (SELECT 1 FROM {lanes} l WHERE l.owner = r.owner)
   ORDER BY r.owner FOR UPDATE SKIP LOCKED)`,

		Fence: `SELECT l.lane, l.config FROM {lanes} l JOIN unnest($1::integer[], $2::bigint[]) AS u(lane, epoch) ON l.lane = u.lane AND l.epoch = u.epoch
 WHERE l.owner = $3::uuid ORDER BY l.lane FOR SHARE OF l`,
		ReadRanges: limited{`SELECT u.ord, {o.lean row}, {claimed},
  CASE WHEN o.key_hash IS NULL OR u.after = 0 THEN NULL ELSE
   {probe} END, o.hint, {withheld}
  FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS u(lane, after, upto, ord)
 CROSS JOIN LATERAL (SELECT o.ctid AS hint, o.* FROM {outbox} o WHERE o.lane = u.lane AND o.pos > u.after AND o.pos <= u.upto
                      ORDER BY o.lane, o.pos LIMIT {LIMIT}) o`},
		SweepRanges: limited{`SELECT u.ord, o.lane, o.pos, o.id, o.key_hash, o.size
  FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS u(lane, after, upto, ord)
 CROSS JOIN LATERAL (SELECT o.lane, o.pos, o.id, o.key_hash, coalesce(octet_length(o.body), 0) AS size FROM {outbox} o WHERE o.lane = u.lane AND o.pos > u.after AND o.pos <= u.upto
                      ORDER BY o.lane, o.pos LIMIT {LIMIT}) o`},
		ReadKeys: limited{`SELECT u.ord, {o.lean row}, {claimed},
  CASE WHEN o.key_hash IS NULL OR u.after = 0 THEN NULL ELSE
   {probe of keys} END, o.hint, {withheld}
  FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[]) WITH ORDINALITY AS u(lane, after, upto, key_hash, ordering_key, ord)
 CROSS JOIN LATERAL (
   (SELECT o.ctid AS hint, o.* FROM {outbox} o WHERE u.key_hash IS NOT NULL AND o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key
       AND o.pos + 0 > u.after AND o.pos + 0 <= u.upto
     ORDER BY o.pos + 0 LIMIT {LIMIT})
   UNION ALL
   (SELECT o.ctid AS hint, o.* FROM {outbox} o WHERE u.key_hash IS NULL AND o.lane = u.lane AND o.pos > u.after AND o.pos <= u.upto
     ORDER BY o.lane, o.pos LIMIT {LIMIT})) o`},
		BodyPart: `SELECT substr(o.body, $4::integer, $5::integer) FROM {outbox} o WHERE o.lane = $1::integer AND o.pos = $2::bigint AND o.id = $3::uuid`,
		Settle: `DELETE FROM {outbox} o USING unnest($1::integer[], $2::bigint[], $3::uuid[]) AS u(lane, pos, id)
 WHERE o.lane = u.lane AND o.pos = u.pos AND o.id = u.id RETURNING o.id`,
		SettleKeys: `DELETE FROM {outbox} o USING unnest($1::integer[], $2::bigint[], $3::uuid[]) AS u(lane, pos, id)
 WHERE o.lane = u.lane AND o.pos = u.pos AND o.id = u.id RETURNING o.id, o.key_hash, o.ordering_key`,
		Lettered: `SELECT u.lane, u.key_hash FROM unnest($1::integer[], $2::bigint[]) AS u(lane, key_hash)
 WHERE (SELECT 1 FROM {dead} d WHERE d.lane = u.lane AND d.key_hash IS NOT NULL AND d.key_hash = u.key_hash LIMIT 1) IS NOT NULL`,
		LettersFrom: `SELECT u.lane, u.key_hash, o.pos FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS u(lane, key_hash, below)
 CROSS JOIN LATERAL (SELECT d.pos FROM {dead} d WHERE d.lane = u.lane AND d.key_hash IS NOT NULL AND d.key_hash = u.key_hash AND d.pos < u.below
                      ORDER BY d.lane DESC, d.key_hash DESC, d.pos DESC OFFSET 1023 LIMIT 1) o`,
		CountLater: `UPDATE {dead} d SET later_out = d.later_out + u.more
  FROM unnest($1::integer[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[]) AS u(lane, key_hash, ordering_key, start, below, more)
 WHERE d.lane = u.lane AND d.key_hash IS NOT NULL AND d.key_hash = u.key_hash AND d.pos >= u.start AND d.pos < u.below AND d.ordering_key = u.ordering_key`,
		SettleMarked: `WITH f AS MATERIALIZED (
  SELECT l.lane, m.pos FROM {lanes} l JOIN unnest($4::integer[], $5::bigint[], $6::bigint[]) AS m(lane, epoch, pos)
      ON l.lane = m.lane AND l.epoch = m.epoch
   WHERE l.owner = $7::uuid ORDER BY l.lane FOR SHARE OF l),
k AS (UPDATE {lane_marks} k SET tried_to = f.pos FROM f WHERE k.lane = f.lane AND k.tried_to < f.pos)
DELETE FROM {outbox} o USING unnest($1::integer[], $2::bigint[], $3::uuid[]) AS u(lane, pos, id)
 WHERE o.lane = u.lane AND o.pos = u.pos AND o.id = u.id RETURNING o.id`,
		SettleAt: settleAt,
		SettleMarkedAt: `WITH f AS MATERIALIZED (
  SELECT l.lane, m.pos FROM {lanes} l JOIN unnest($5::integer[], $6::bigint[], $7::bigint[]) AS m(lane, epoch, pos)
      ON l.lane = m.lane AND l.epoch = m.epoch
   WHERE l.owner = $8::uuid ORDER BY l.lane FOR SHARE OF l),
k AS (UPDATE {lane_marks} k SET tried_to = f.pos FROM f WHERE k.lane = f.lane AND k.tried_to < f.pos)
` + settleAt,
		FindHot: `SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM unnest($1::integer[], $2::bigint[], $3::uuid[]) AS u(lane, pos, id)
  JOIN {outbox} o ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id ORDER BY o.lane, o.pos FOR UPDATE OF o`,
		FindDeferred: `SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM unnest($1::integer[], $2::bigint[], $3::uuid[]) AS u(lane, pos, id)
  JOIN {deferred} o ON o.lane = u.lane AND o.id = u.id AND o.pos = u.pos ORDER BY o.lane, o.pos FOR UPDATE OF o`,
		DropDeferred: `DELETE FROM {deferred} o USING unnest($1::integer[], $2::uuid[]) AS u(lane, id) WHERE o.lane = u.lane AND o.id = u.id`,
		FailHot: `UPDATE {outbox} o SET attempts = u.attempts, last_error = u.reason, retry_at = u.retry_at, first_failed_at = COALESCE(o.first_failed_at, {now})
  FROM unnest($1::integer[], $2::uuid[], $3::integer[], $4::text[], $5::bigint[]) AS u(lane, id, attempts, reason, retry_at)
 WHERE o.lane = u.lane AND o.id = u.id`,
		FailDeferred: `UPDATE {deferred} o SET attempts = u.attempts, last_error = u.reason, retry_at = u.retry_at, first_failed_at = COALESCE(o.first_failed_at, {now}),
   due_at = CASE WHEN o.due_at IS NULL THEN NULL ELSE COALESCE(GREATEST(o.deliver_at, u.retry_at), 0) END
  FROM unnest($1::integer[], $2::uuid[], $3::integer[], $4::text[], $5::bigint[]) AS u(lane, id, attempts, reason, retry_at)
 WHERE o.lane = u.lane AND o.id = u.id`,
		Defer: `INSERT INTO {deferred} (pos, {msg}, {state}, due_at)
SELECT o.pos, {o.msg}, {o.state}, CASE WHEN u.aside <> 0 THEN NULL ELSE COALESCE(GREATEST(o.deliver_at, o.retry_at), 0) END
  FROM unnest($1::integer[], $2::uuid[], $3::smallint[]) AS u(lane, id, aside)
  JOIN {outbox} o ON o.lane = u.lane AND o.id = u.id
ON CONFLICT (lane, id) DO NOTHING RETURNING lane, id`,
		BuryHot: `INSERT INTO {dead} (pos, {msg}, attempts, last_error, first_failed_at, reason, died_at)
SELECT o.pos, {o.msg}, u.attempts, u.reason, o.first_failed_at, u.reason, {now}
  FROM unnest($1::integer[], $2::uuid[], $3::integer[], $4::text[]) AS u(lane, id, attempts, reason)
  JOIN {outbox} o ON o.lane = u.lane AND o.id = u.id`,
		BuryDeferred: `INSERT INTO {dead} (pos, {msg}, attempts, last_error, first_failed_at, reason, died_at)
SELECT o.pos, {o.msg}, u.attempts, u.reason, o.first_failed_at, u.reason, {now}
  FROM unnest($1::integer[], $2::uuid[], $3::integer[], $4::text[]) AS u(lane, id, attempts, reason)
  JOIN {deferred} o ON o.lane = u.lane AND o.id = u.id`,
		DropDead: `DELETE FROM {dead} o USING unnest($1::uuid[]) AS u(id) WHERE o.id = u.id`,
		Marks: `UPDATE {lane_marks} k SET tried_to = u.pos FROM unnest($1::integer[], $2::bigint[]) AS u(lane, pos)
 WHERE k.lane = u.lane AND k.tried_to < u.pos`,
		Due: limited{`SELECT o.lane, o.id, o.ordering_key FROM unnest($1::integer[]) WITH ORDINALITY AS u(lane, ord)
 CROSS JOIN LATERAL (SELECT o.lane, o.id, o.ordering_key, o.due_at, o.pos FROM {deferred} o
                      WHERE o.lane = u.lane AND o.due_at <= (SELECT {now}) AND (o.claim_until IS NULL OR o.claim_until <= (SELECT {now}))
                      ORDER BY o.lane, o.due_at, o.pos LIMIT {LIMIT} FOR UPDATE SKIP LOCKED) o
 ORDER BY u.ord, o.due_at, o.pos LIMIT $2::integer`},
		Promote: `INSERT INTO {outbox} AS o ({msg}, {state})
SELECT {d.msg}, d.attempts, d.last_error, d.first_failed_at, d.retry_at, d.claim_token, d.claim_until
  FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS u(lane, id, ord)
  JOIN {deferred} d ON d.lane = u.lane AND d.id = u.id ORDER BY u.ord
ON CONFLICT (lane, id) DO NOTHING RETURNING {o.row}`,
		NextDue: `SELECT min(o.due_at) FROM unnest($1::integer[]) AS u(lane)
 CROSS JOIN LATERAL (SELECT o.due_at FROM {deferred} o WHERE o.lane = u.lane AND o.due_at IS NOT NULL
                        AND (o.claim_until IS NULL OR o.claim_until <= GREATEST((SELECT {now}), o.due_at))
                      ORDER BY o.lane, o.due_at, o.pos LIMIT 1) o`,
		NextClaimed: `SELECT min(o.claim_until) FROM unnest($1::integer[]) AS u(lane)
 CROSS JOIN LATERAL (SELECT o.claim_until FROM {deferred} o WHERE o.lane = u.lane AND o.due_at <= (SELECT {now})
                      ORDER BY o.lane, o.due_at, o.pos LIMIT 1024) o
 WHERE o.claim_until > (SELECT {now})`,

		Park: `INSERT INTO {parked_keys} AS k (lane, key_hash, ordering_key, why, parked_by, parked_at)
SELECT u.lane, u.key_hash, u.ordering_key, u.why, $5::text, {now}
  FROM unnest($1::integer[], $2::bigint[], $3::bytea[], $4::text[]) AS u(lane, key_hash, ordering_key, why)
ON CONFLICT (lane, key_hash, ordering_key) DO UPDATE
   SET unparking = 0, why = EXCLUDED.why, parked_by = EXCLUDED.parked_by, parked_at = EXCLUDED.parked_at WHERE k.unparking <> 0`,
		Unpark: `UPDATE {parked_keys} SET unparking = 1
 WHERE lane = $1::integer AND key_hash = $2::bigint AND ordering_key = $3::bytea AND unparking = 0`,
		// NOT EXISTS would be a join, with all rows that are aside if they seem to be few.
		Lift: `DELETE FROM {parked_keys} k USING unnest($1::integer[], $2::bigint[], $3::bytea[]) AS u(lane, key_hash, ordering_key)
 WHERE k.lane = u.lane AND k.key_hash = u.key_hash AND k.ordering_key = u.ordering_key AND k.unparking <> 0
   AND (SELECT 1 FROM {deferred} o WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key AND o.due_at IS NULL LIMIT 1) IS NULL
RETURNING k.lane, k.ordering_key`,
		Parked: `SELECT lane, key_hash, ordering_key, unparking, parked_by, parked_at, why FROM {parked_keys}`,
		ParkedRows: limited{`SELECT o.lane, o.id FROM unnest($1::integer[], $2::bigint[], $3::bytea[]) AS u(lane, key_hash, ordering_key)
 CROSS JOIN LATERAL (SELECT o.lane, o.id FROM {outbox} o
   WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key
   ORDER BY o.pos + 0 LIMIT {LIMIT} FOR UPDATE) o
 LIMIT $4::integer`},
		AsideRows: limited{`SELECT o.lane, o.id FROM unnest($1::integer[], $2::bigint[], $3::bytea[]) AS u(lane, key_hash, ordering_key)
 CROSS JOIN LATERAL (SELECT o.lane, o.id FROM {deferred} o
   WHERE o.lane = u.lane AND o.due_at IS NULL AND o.ordering_key = u.ordering_key AND (o.key_hash, o.pos) > (u.key_hash, 0)
     AND (o.key_hash, o.pos) <= (u.key_hash, 9223372036854775807)
   ORDER BY o.lane, o.key_hash, o.pos LIMIT {LIMIT} FOR UPDATE) o
 LIMIT $4::integer`},
		Return: `INSERT INTO {outbox} (pos, {msg}, {state})
SELECT CASE WHEN {taken} THEN nextval({'outbox_pos}::regclass) ELSE d.pos END,
   {d.msg}, d.attempts, d.last_error, d.first_failed_at, d.retry_at, d.claim_token, d.claim_until
  FROM unnest($1::integer[], $2::uuid[]) AS u(lane, id)
  JOIN {deferred} d ON d.lane = u.lane AND d.id = u.id ORDER BY d.lane, d.pos
ON CONFLICT (lane, id) DO NOTHING`,
		SeenConfig: `UPDATE {lane_marks} k SET config_seen = u.config FROM unnest($1::integer[], $2::bigint[]) AS u(lane, config)
 WHERE k.lane = u.lane AND k.config_seen < u.config`,
		RaiseConfig: `WITH l AS MATERIALIZED (SELECT lane FROM {lanes} WHERE lane = ANY ($1::integer[]) ORDER BY lane FOR UPDATE)
UPDATE {lanes} SET config = config + 1 WHERE lane IN (SELECT lane FROM l)`,
		CountAside:  `SELECT count(*) FROM {deferred} WHERE lane BETWEEN $1::integer AND $2::integer`,
		CountParked: `SELECT count(*) FROM {parked_keys} WHERE lane BETWEEN $1::integer AND $2::integer`,
		Audit:       `INSERT INTO {audit} (at, done_by, what, how_many, detail) VALUES ({now}, $1::text, $2::text, $3::bigint, $4::text)`,
		LaneOwners:  `SELECT lane, owner FROM {lanes} WHERE owner IS NOT NULL`,
		ListDead: limited{`SELECT {o.row}, o.first_failed_at, o.reason, o.died_at, o.later_out FROM (
  SELECT pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers,
    CASE WHEN $3::smallint <> 0 THEN NULL ELSE body END AS body,
    deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions,
    correlation_id, causation_id, traceparent, tracestate, attempts, last_error, NULL::bigint AS retry_at, first_failed_at, reason, died_at, later_out
   FROM {dead} WHERE (died_at, id) > ($1::bigint, $2::uuid) ORDER BY died_at, id LIMIT {LIMIT}) o ORDER BY o.died_at, o.id`},
		ListDeadOf: limited{`SELECT {o.row}, o.first_failed_at, o.reason, o.died_at, o.later_out FROM (
  SELECT pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers,
    CASE WHEN $3::smallint <> 0 THEN NULL ELSE body END AS body,
    deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions,
    correlation_id, causation_id, traceparent, tracestate, attempts, last_error, NULL::bigint AS retry_at, first_failed_at, reason, died_at, later_out
   FROM {dead} WHERE transport = $4::text AND (died_at, id) > ($1::bigint, $2::uuid) ORDER BY died_at, id LIMIT {LIMIT}) o ORDER BY o.died_at, o.id`},
		CountDead:   `SELECT count(*) FROM {dead}`,
		CountDeadOf: `SELECT count(*) FROM {dead} WHERE transport = $1::text`,
		Confirmed: `SELECT count(*) FROM unnest($1::integer[]) AS u(lane) JOIN {lanes} l ON l.lane = u.lane
  JOIN {lane_marks} m ON m.lane = l.lane JOIN {relays} r ON r.owner = l.owner
 WHERE m.config_seen < l.config AND r.ended = 0 AND r.expires_at > {now}`,
		LanesOfDead: `SELECT d.lane FROM unnest($1::uuid[]) AS u(id) JOIN {dead} d ON d.id = u.id`,
		LockDead: `SELECT d.id, d.lane, d.transport, d.ordering_key, d.later_out FROM unnest($1::uuid[]) AS u(id) JOIN {dead} d ON d.id = u.id
 ORDER BY d.lane, d.pos, d.id FOR UPDATE OF d`,
		Replay: `INSERT INTO {outbox} (pos, {msg})
SELECT CASE WHEN {taken} THEN nextval({'outbox_pos}::regclass) ELSE d.pos END, {d.msg}
  FROM unnest($1::uuid[]) AS u(id) JOIN {dead} d ON d.id = u.id ORDER BY d.lane, d.pos
ON CONFLICT (lane, id) DO NOTHING RETURNING id`,

		Reserve: `INSERT INTO {inbox} AS i (consumer, message_id, processed_at, expires_at) VALUES ($1::text, $2::text, $3::bigint, $4::bigint)
ON CONFLICT (consumer, message_id) DO UPDATE
   SET processed_at = EXCLUDED.processed_at, expires_at = EXCLUDED.expires_at, token = NULL
 WHERE i.expires_at <= EXCLUDED.processed_at`,
		Processed: `SELECT count(*) FROM {inbox} WHERE consumer = $2::text AND message_id = $3::text AND token IS NULL AND (expires_at IS NULL OR expires_at > $1::bigint)`,
		MarkInbox: `INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at) VALUES ($1::text, $2::text, $3::bigint, $4::bigint)
ON CONFLICT (consumer, message_id) DO UPDATE
   SET processed_at = EXCLUDED.processed_at, expires_at = EXCLUDED.expires_at, token = NULL`,
		ClaimInbox: `INSERT INTO {inbox} AS i (consumer, message_id, processed_at, expires_at, token) VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::bytea)
ON CONFLICT (consumer, message_id) DO UPDATE
   SET processed_at = EXCLUDED.processed_at, expires_at = EXCLUDED.expires_at, token = EXCLUDED.token
 WHERE i.expires_at <= EXCLUDED.processed_at`,
		InboxToken: `SELECT token FROM {inbox} WHERE consumer = $1::text AND message_id = $2::text`,
		RenewInbox: `UPDATE {inbox} SET expires_at = GREATEST(expires_at, $4::bigint)
 WHERE consumer = $1::text AND message_id = $2::text AND token = $5::bytea AND expires_at > $3::bigint`,
		CompleteInbox: `UPDATE {inbox} SET processed_at = $3::bigint, expires_at = $4::bigint, token = NULL
 WHERE consumer = $1::text AND message_id = $2::text AND token = $5::bytea`,
		ReleaseInbox: `DELETE FROM {inbox} WHERE consumer = $1::text AND message_id = $2::text AND token = $3::bytea`,
		PurgeInbox: limited{`DELETE FROM {inbox} WHERE (consumer, message_id) IN (
  SELECT consumer, message_id FROM {inbox} WHERE expires_at <= $1::bigint ORDER BY expires_at LIMIT {LIMIT} FOR UPDATE SKIP LOCKED)`},
	},
}

// settingsPostgres keep a plan that was made while a table was empty from being
// used when it is full. Writes find their rows by keys, up to 1,000 at a time: a
// hash join would read the whole table for them. Where pgx asks for text it reads
// bytes in hexadecimal only.
const (
	settingsPostgres = "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off; SET LOCAL bytea_output = hex"
	keysPostgres     = "; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
)

// sqlState is the driver's SQLSTATE, "" without one. Both pgx's and lib/pq's
// errors have the method.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// readyPostgres refuses the one setting at which a list would be another than was
// written: NULL would be the text "NULL".
func readyPostgres(ctx context.Context, c Querier) error {
	var nulls string
	if err := queryRow(ctx, c, "SELECT current_setting('array_nulls')", nil, &nulls); err != nil {
		return err
	}
	if nulls != "on" {
		return invalid("array_nulls is off, which makes a text of each NULL in a list: set it to on for the role, the database or the server")
	}
	return nil
}

// preparePostgres gives a relay's connection plans that fit its statements
// whatever the tables held when it was opened (every one of them finds its rows
// by an index, in the order of that index), and time limits, so that a relay
// host that vanishes holds no lock for long.
func preparePostgres(ctx context.Context, c Querier, purpose string) (func(context.Context) error, error) {
	timeout, plans := "60s", "force_custom_plan"
	switch purpose {
	case "lease":
		timeout = "10s"
	case "settle":
		// There is one way to find rows by their keys, and to plan it anew for
		// arrays of a thousand keys takes a third of the statement's time.
		plans = "force_generic_plan"
	}
	_, err := c.Exec(ctx, `SELECT set_config('application_name', $1::text, false),
 set_config('plan_cache_mode', $3::text, false), set_config('jit', 'off', false), set_config('enable_bitmapscan', 'off', false),
 set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false), set_config('bytea_output', 'hex', false),
 set_config('default_transaction_isolation', 'read committed', false), set_config('default_transaction_read_only', 'off', false),
 set_config('statement_timeout', $2::text, false), set_config('idle_in_transaction_session_timeout', '15s', false)`,
		"postrider "+purpose, timeout, plans)
	return nil, err
}

// arrays writes a table parameter as one array literal per column.
type arrays struct {
	cols [][]byte
	at   int
}

func newArrays(columns int) *arrays { return &arrays{cols: make([][]byte, columns)} }

// ArrayLiteral is a table parameter of one column as PostgreSQL reads it.
func ArrayLiteral(write func(RowWriter)) string {
	a := newArrays(1)
	write(a)
	return a.Args()[0].(string)
}

func (a *arrays) Grow(rows int) {
	for i, b := range a.cols {
		a.cols[i] = slices.Grow(b, 8*rows)
	}
}

func (a *arrays) next() *[]byte {
	b := &a.cols[a.at]
	a.at = (a.at + 1) % len(a.cols)
	if len(*b) == 0 {
		*b = append(*b, '{')
	} else {
		*b = append(*b, ',')
	}
	return b
}

func (a *arrays) Int(v int64) {
	b := a.next()
	*b = strconv.AppendInt(*b, v, 10)
}

func (a *arrays) Null() {
	b := a.next()
	*b = append(*b, "NULL"...)
}

func (a *arrays) Text(s string) {
	b := a.next()
	out := append(*b, '"')
	for i := 0; i < len(s); i++ {
		if s[i] == '"' || s[i] == '\\' {
			out = append(out, '\\')
		}
		out = append(out, s[i])
	}
	*b = append(out, '"')
}

func (a *arrays) Name(s string) { a.Text(s) }

func (a *arrays) Bytes(v []byte) {
	if v == nil {
		a.Null()
		return
	}
	b := a.next()
	*b = append(hex.AppendEncode(append(*b, `"\\x`...), v), '"')
}

// Hint writes a tid: a block and a place in it.
func (a *arrays) Hint(h uint64) {
	b := a.next()
	out := strconv.AppendUint(append(*b, `"(`...), h>>16, 10)
	*b = append(strconv.AppendUint(append(out, ','), h&0xffff, 10), `)"`...)
}

func (a *arrays) ID(id outbox.ID) {
	b := a.next()
	*b = hex.AppendEncode(*b, id[:])
}

func (a *arrays) Args() []any {
	args := make([]any, len(a.cols))
	for i, b := range a.cols {
		if len(b) == 0 {
			b = append(b, '{')
		}
		args[i] = string(append(b, '}'))
	}
	return args
}

// probe looks for the row's key below the cursor, and above the position up to
// which it was seen: the keys seen are arrays, sorted by code, which is the hash
// XOR the lane. A key may lie in a lane of every route.
func probe(codes, lanes, positions string) string {
	at := `[width_bucket(o.key_hash # u.lane, ` + codes + `::bigint[])]`
	return `(SELECT p.pos FROM {outbox} p WHERE p.lane = o.lane AND p.key_hash = o.key_hash AND p.ordering_key = o.ordering_key
      AND p.pos + 0 <= u.after
      AND p.pos + 0 > CASE WHEN (` + codes + `::bigint[])` + at + ` = o.key_hash # u.lane AND (` + lanes + `::integer[])` + at + ` = u.lane
                           THEN (` + positions + `::bigint[])` + at + ` ELSE 0 END
    ORDER BY p.pos + 0 DESC LIMIT 1)`
}

// settleAt deletes rows by their places in the table, without a walk through an
// index, in one scan of those places and in their order: a join with the settlements
// costs half as much again. What lies there is compared with the settlement of its
// position, which is found by halves: the arrays are in the order of positions. A row
// that an update has moved since is not there, and is looked for by position.
const settleAt = `DELETE FROM {outbox} o
 WHERE o.ctid = ANY ($4::tid[])
   AND o.pos = ($2::bigint[])[width_bucket(o.pos, $2::bigint[])]
   AND o.lane = ($1::integer[])[width_bucket(o.pos, $2::bigint[])]
   AND o.id = ($3::uuid[])[width_bucket(o.pos, $2::bigint[])] RETURNING o.id`
