package sqlcore

// textsSQLServer are the texts of SQL Server.
var textsSQLServer = texts{
	Version: `SELECT CONCAT(CASE WHEN CONVERT(INT, SERVERPROPERTY('EngineEdition')) IN (5, 8) THEN 'Microsoft Azure SQL ' ELSE 'Microsoft SQL Server ' END,
   CONVERT(NVARCHAR(128), SERVERPROPERTY('ProductVersion')), ', compatibility level ', d.compatibility_level, ', READ_COMMITTED_SNAPSHOT ', CONVERT(INT, d.is_read_committed_snapshot_on))
  FROM sys.databases d WHERE d.name = DB_NAME()`,
	Absent: `SELECT t.name FROM (VALUES ` + eachTable("('%s', OBJECT_ID({'%[1]s}, 'U'))", ", ") + `) AS t (name, place)
 WHERE t.place IS NULL`,
	ReadOnly: `SELECT CASE WHEN CONVERT(NVARCHAR(60), DATABASEPROPERTYEX(DB_NAME(), 'Updateability')) = N'READ_ONLY' THEN 1 ELSE 0 END`,
	Rights: `SELECT u.place, p.object, p.privilege, QUOTENAME(USER_NAME())
  FROM {u:rights}
 CROSS APPLY (SELECT CONCAT(QUOTENAME(COALESCE(OBJECT_SCHEMA_NAME(OBJECT_ID({'meta})), {schema})), '.', QUOTENAME(u.place)) AS object, CASE u.privilege WHEN 'USAGE' THEN 'UPDATE' ELSE u.privilege END AS privilege) p
 WHERE COALESCE(HAS_PERMS_BY_NAME(p.object, 'OBJECT', p.privilege), 0) = 0
 ORDER BY u.ord`,
	HasMeta:   `SELECT CASE WHEN OBJECT_ID({'meta}, 'U') IS NULL THEN 0 ELSE 1 END`,
	HasSchema: `SELECT COUNT(*) FROM sys.schemas WHERE name = @p1`,
	Lock: `DECLARE @locked INT, @migration NVARCHAR(255) = CONCAT(N'postrider migration ', @p1, N' ', LOWER({schema}));
EXEC @locked = sp_getapplock @Resource = @migration, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 600000;
{locked}
SELECT 1`,
	Meta:     `SELECT name, value FROM {meta}`,
	Routes:   `SELECT name, first_lane, ordered_lanes, unordered_lanes FROM {routes} ORDER BY first_lane`,
	AddRoute: `INSERT INTO {routes} (name, first_lane, ordered_lanes, unordered_lanes) VALUES (@p1, @p2, @p3, @p4)`,
	AddLanes: `INSERT INTO {lanes} (lane, is_ordered, route) SELECT u.lane, u.is_ordered, @p2 FROM {u:lane+ordered}`,
	AddMarks: `INSERT INTO {lane_marks} (lane) SELECT u.lane FROM {u:lane}`,
	Now:      `SELECT {now}`,

	QueueMany: `{quietly}INSERT INTO {outbox} (pos, {msg})
SELECT {drawn} (ORDER BY u.ord), {u.msg} FROM {many}`,
	DeferMany: `{quietly}INSERT INTO {deferred} (pos, {msg}, due_at)
SELECT {drawn} (ORDER BY u.ord), {u.msg}, u.deliver_at FROM {many}`,
	UnlistHot: `DELETE o FROM {u:lane+id} JOIN {outbox} o {row by id} ON o.lane = u.lane AND o.id = u.id {plan}`,
	// TOP keeps the id an argument of each search: as a join of the whole it could be one
	// of all that is pending.
	PendingIDs: `SELECT u.id FROM {u:id}
 CROSS APPLY (SELECT TOP (1) h.lane FROM ({pending}
   UNION ALL {pending deferred}) h) f
{plan}`,

	ReadLane: limited{`SELECT TOP ({LIMIT}) {o.row} FROM (
  SELECT h.* FROM (SELECT TOP ({LIMIT}) {o.row} FROM {outbox} o {by id} WHERE o.lane = {lane:2} AND o.id > {id:3} AND o.key_hash IS NOT NULL
    AND {ready} ORDER BY o.id) h
  UNION ALL
  SELECT h.* FROM (SELECT TOP ({LIMIT}) {o.row} FROM {deferred} o WITH (INDEX ({=deferred_pk})) WHERE o.lane = {lane:2} AND o.id > {id:3} AND o.key_hash IS NOT NULL
    AND {due} ORDER BY o.id) h) o
 ORDER BY o.id OPTION (MAXDOP 1)`},
	ReadUnordered: limited{`SELECT TOP ({LIMIT}) {o.row} FROM (
  SELECT h.* FROM {lanes} l CROSS APPLY (SELECT TOP ({LIMIT}) {o.row} FROM {outbox} o {by id} WHERE o.lane = l.lane AND o.id > {id:2}
    AND {ready} ORDER BY o.id) h WHERE l.is_ordered = 0
  UNION ALL
  SELECT h.* FROM {lanes} l CROSS APPLY (SELECT TOP ({LIMIT}) {o.row} FROM {deferred} o WITH (INDEX ({=deferred_pk})) WHERE o.lane = l.lane AND o.id > {id:2}
    AND {due} ORDER BY o.id) h WHERE l.is_ordered = 0) o
 ORDER BY o.id OPTION (MAXDOP 1)`},
	FindPending: `SELECT o.lane FROM {lanes} l JOIN {outbox} o {by id} ON o.lane = l.lane AND o.id = {id:1}
UNION ALL SELECT o.lane FROM {lanes} l JOIN {deferred} o {deferred by id} ON o.lane = l.lane AND o.id = {id:1} {plan}`,
	LockLane:  `SELECT owner FROM {lanes} {shared} WHERE lane = {lane:1}`,
	LockRelay: `SELECT CASE WHEN ended = 0 AND expires_at > {now} THEN 1 ELSE 0 END FROM {relays} {shared} WHERE owner = {id:1}`,
	ClaimHot: `UPDATE o SET claim_token = @p4, claim_until = @p5 FROM {outbox} o {row by id}
 WHERE o.lane = {lane:2} AND o.id = {id:3}
    AND {ready}`,
	ClaimDeferred: `UPDATE o SET claim_token = @p4, claim_until = @p5 FROM {deferred} o {row deferred}
 WHERE o.lane = {lane:2} AND o.id = {id:3}
    AND {due}`,
	RenewHot: `UPDATE o SET claim_until = CASE WHEN o.claim_until > @p4 THEN o.claim_until ELSE @p4 END
  FROM {lanes} l JOIN {outbox} o {row by id} ON o.lane = l.lane AND o.id = {id:2} {claim} {plan}`,
	RenewDeferred: `UPDATE o SET claim_until = CASE WHEN o.claim_until > @p4 THEN o.claim_until ELSE @p4 END
  FROM {lanes} l JOIN {deferred} o {row deferred} ON o.lane = l.lane AND o.id = {id:2} {claim} {plan}`,
	DoneHot:      `DELETE o FROM {lanes} l JOIN {outbox} o {row by id} ON o.lane = l.lane AND o.id = {id:2} {claim} {plan}`,
	DoneDeferred: `DELETE o FROM {lanes} l JOIN {deferred} o {row deferred} ON o.lane = l.lane AND o.id = {id:2} {claim} {plan}`,
	ClaimedHot: `SELECT o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END
  FROM {lanes} l JOIN {outbox} o {lock by id} ON o.lane = l.lane AND o.id = {id:2} {claim} {plan}`,
	ClaimedDeferred: `SELECT o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END
  FROM {lanes} l JOIN {deferred} o {lock deferred} ON o.lane = l.lane AND o.id = {id:2} {claim} {plan}`,
	UnclaimHot:      `UPDATE o SET claim_token = NULL, claim_until = NULL FROM {outbox} o {row by id} WHERE o.lane = {lane:1} AND o.id = {id:2}`,
	UnclaimDeferred: `UPDATE o SET claim_token = NULL, claim_until = NULL FROM {deferred} o {row deferred} WHERE o.lane = {lane:1} AND o.id = {id:2}`,
	CountHot: `SELECT COUNT_BIG(*), MIN(o.created_at) FROM {outbox} o WHERE o.lane BETWEEN {lane:2} AND {lane:3}
    AND {ready}`,
	CountDeferred: `SELECT COUNT_BIG(*), MIN(o.created_at) FROM {deferred} o WHERE o.lane BETWEEN {lane:2} AND {lane:3}
    AND {due}`,
	Oldest: `SELECT MIN(x.created_at) FROM (
  SELECT h.created_at FROM {lanes} l CROSS APPLY (SELECT TOP (128) o.created_at FROM {outbox} o {range by pos} WHERE o.lane = l.lane
    AND {ready} ORDER BY o.pos) h
  UNION ALL
  SELECT h.created_at FROM {lanes} l CROSS APPLY (SELECT TOP (128) o.created_at FROM {deferred} o WITH (INDEX ({=deferred_due}), FORCESEEK) WHERE o.lane = l.lane
    AND {due} ORDER BY o.due_at, o.pos) h) x OPTION (MAXDOP 1)`,

	LiveRelays: `SELECT owner, routes, expires_at, {now} FROM {relays} WHERE ended = 0 AND expires_at > {now}`,
	HeldLanes:  `SELECT lane FROM {lanes} WHERE owner = {id:1}`,
	LockLanes: `SELECT l.lane FROM {u:lane+epoch} JOIN {lanes} l {exclusive} ON l.lane = u.lane AND l.epoch = u.epoch
 WHERE l.owner = {id:2} {plan}`,
	// What is locked is looked for before, without a lock, so that lanes of others
	// stay free.
	LockOwned: `SELECT l.lane FROM (SELECT TOP (100000) c.lane FROM {lanes} c WHERE c.owner = {id:1} ORDER BY c.lane) c
  JOIN {lanes} l {exclusive} ON l.lane = c.lane WHERE l.owner = {id:1} {plan}`,
	Candidates: `SELECT TOP (@p3) l.lane, l.owner, CASE WHEN EXISTS (SELECT 1 FROM {relays} r WHERE r.owner = l.owner) THEN 1 ELSE 0 END
  FROM (SELECT TOP (100000) c.lane FROM {lanes} c WHERE c.lane BETWEEN {lane:1} AND {lane:2} AND NOT EXISTS ({live}) ORDER BY c.lane) c
  JOIN {lanes} l {exclusive unless locked} ON l.lane = c.lane WHERE NOT EXISTS ({live owner}) {plan}`,
	LockOwner: `SELECT expires_at, ended FROM {relays} {exclusive} WHERE owner = {id:1}`,
	Owners:    `SELECT r.owner FROM {u:owner} JOIN {relays} r ON r.owner = u.owner {plan}`,
	LockOwners: `SELECT r.owner, r.expires_at, r.ended FROM {u:owner} JOIN {relays} r {exclusive unless locked} ON r.owner = u.owner
{plan}`,
	AddRelay: `INSERT INTO {relays} (owner, expires_at, routes, ended) VALUES ({id:1}, @p2, @p3, @p4)`,
	RenewRelay: `UPDATE {relays} SET expires_at = CASE WHEN expires_at > @p2 THEN expires_at ELSE @p2 END, routes = @p3, ended = @p4
 WHERE owner = {id:1}`,
	EndRelays: `UPDATE r SET ended = 1 FROM {u:owner} JOIN {relays} r {one row} ON r.owner = u.owner {plan}`,
	ReleaseLanes: `UPDATE l SET owner = NULL, unclean = 0 FROM {u:lane} JOIN {lanes} l {one row} ON l.lane = u.lane
 WHERE l.owner = {id:2} {plan}`,
	TakeLanes: `UPDATE l SET unclean = CASE WHEN l.owner IS NULL THEN 0 ELSE 1 END, owner = {id:2}, epoch = l.epoch + 1
  FROM {u:lane} JOIN {lanes} l {one row} ON l.lane = u.lane {plan}`,
	Leases: `SELECT l.lane, l.route, l.epoch, l.config, l.unclean, m.tried_to,
  CASE WHEN EXISTS (SELECT 1 FROM {dead} d WITH (INDEX ({=dead_key}), FORCESEEK) WHERE d.lane = l.lane AND d.key_hash IS NOT NULL) THEN 1 ELSE 0 END
  FROM {lanes} l JOIN {lane_marks} m ON m.lane = l.lane
 WHERE l.owner = {id:1} ORDER BY l.lane`,
	ForgetRelays: `DELETE g FROM {relays} g WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
 WHERE g.expires_at < @p1 AND NOT EXISTS (SELECT 1 FROM {lanes} l WHERE l.owner = g.owner)`,

	Fence: `SELECT l.lane, l.config FROM {u:lane+epoch} JOIN {lanes} l {shared} ON l.lane = u.lane AND l.epoch = u.epoch
 WHERE l.owner = {id:2} {plan}`,
	ReadRanges: limited{`SELECT u.ord, {o.lean row}, {claimed}, NULL, NULL, {withheld}
  FROM {u:range}
 CROSS APPLY (SELECT TOP ({LIMIT}) o.* FROM {outbox} o {range by pos} WHERE o.lane = u.lane AND o.pos > u.after AND o.pos <= u.upto
               ORDER BY o.pos) o
{plan}`},
	SweepRanges: limited{`SELECT u.ord, o.lane, o.pos, o.id, o.key_hash, o.size
  FROM {u:range}
 CROSS APPLY (SELECT TOP ({LIMIT}) o.lane, o.pos, o.id, o.key_hash, COALESCE(DATALENGTH(o.body), 0) AS size
                FROM {outbox} o {range by pos} WHERE o.lane = u.lane AND o.pos > u.after AND o.pos <= u.upto
               ORDER BY o.pos) o
{plan}`},
	ReadKeys: limited{`SELECT u.ord, {o.lean row}, {claimed}, NULL, NULL, {withheld}
  FROM {u:ranges}
 CROSS APPLY (
  SELECT h.* FROM (SELECT TOP ({LIMIT}) o.* FROM {outbox} o {range by key}
    WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key AND o.pos > u.after AND o.pos <= u.upto
    ORDER BY o.pos) h
  UNION ALL
  SELECT h.* FROM (SELECT TOP ({LIMIT}) o.* FROM {outbox} o {range by pos}
    WHERE u.key_hash IS NULL AND o.lane = u.lane AND o.pos > u.after AND o.pos <= u.upto
    ORDER BY o.pos) h) o
{plan}`},
	KeyPrevs: `SELECT u.nr, u.key_hash, p.ordering_key, p.pos
  FROM {u:prev}
 CROSS APPLY (SELECT TOP (1) o.ordering_key, o.pos FROM {outbox} o {range by key}
               WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.pos <= u.after
               ORDER BY o.pos DESC) p
{plan}`,
	KeyPrevsAbove: `SELECT u.lane, u.key_hash, p.ordering_key, p.pos
  FROM {u:above}
 CROSS APPLY (SELECT TOP (1) o.ordering_key, o.pos FROM {outbox} o {range by key}
               WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.pos > u.above AND o.pos <= u.after
               ORDER BY o.pos DESC) p
{plan}`,
	BodyPart: `SELECT SUBSTRING(o.body, @p4, @p5) FROM {outbox} o WHERE o.lane = {lane:1} AND o.pos = @p2 AND o.id = {id:3}`,
	Settle: `DELETE o OUTPUT deleted.id FROM {u:row} JOIN {outbox} o {row by pos} ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id
{plan}`,
	SettleKeys: `DELETE o OUTPUT deleted.id, deleted.key_hash, deleted.ordering_key
  FROM {u:row} JOIN {outbox} o {row by pos} ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id
{plan}`,
	Lettered: `SELECT u.lane, u.key_hash FROM {u:lettered}
 CROSS APPLY (SELECT TOP (1) d.pos FROM {dead} d WITH (INDEX ({=dead_key}), FORCESEEK) WHERE d.lane = u.lane AND d.key_hash = u.key_hash) x
{plan}`,
	LettersFrom: `SELECT u.lane, u.key_hash, x.pos FROM {u:letters}
 CROSS APPLY (SELECT d.pos FROM {dead} d WITH (INDEX ({=dead_key}), FORCESEEK) WHERE d.lane = u.lane AND d.key_hash = u.key_hash AND d.pos < u.below
               ORDER BY d.pos DESC OFFSET 1023 ROWS FETCH NEXT 1 ROWS ONLY) x
{plan}`,
	CountLater: `UPDATE d SET later_out = d.later_out + u.more
  FROM {u:later}
  JOIN {dead} d WITH (ROWLOCK, INDEX ({=dead_key}), FORCESEEK)
    ON d.lane = u.lane AND d.key_hash = u.key_hash AND d.pos >= u.start AND d.pos < u.below AND d.ordering_key = u.ordering_key
{plan}`,
	// A transaction of its own, in one round trip: the rows are out with the commit.
	SettleMarked: `SET XACT_ABORT ON;
SET NOCOUNT ON;
BEGIN TRANSACTION;
UPDATE k SET tried_to = m.pos
  FROM {m:mark} JOIN {lanes} l {shared} ON l.lane = m.lane AND l.epoch = m.epoch AND l.owner = {id:3}
  JOIN {lane_marks} k {one row} ON k.lane = l.lane AND k.tried_to < m.pos
{plan};
DELETE o OUTPUT deleted.id FROM {u:row} JOIN {outbox} o {row by pos} ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id
{plan};
COMMIT TRANSACTION`,
	FindHot: `SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM {u:row} JOIN {outbox} o {lock by pos} ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id
{plan}`,
	FindDeferred: `SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM {u:row} JOIN {deferred} o {lock deferred} ON o.lane = u.lane AND o.id = u.id AND o.pos = u.pos
{plan}`,
	DropDeferred: `DELETE o FROM {u:lane+id} JOIN {deferred} o {row deferred} ON o.lane = u.lane AND o.id = u.id {plan}`,
	FailHot: `UPDATE o SET attempts = u.attempts, last_error = u.reason, retry_at = u.retry_at, first_failed_at = COALESCE(o.first_failed_at, {now})
  FROM {u:fail} JOIN {outbox} o {row by id} ON o.lane = u.lane AND o.id = u.id
{plan}`,
	FailDeferred: `UPDATE o SET attempts = u.attempts, last_error = u.reason, retry_at = u.retry_at, first_failed_at = COALESCE(o.first_failed_at, {now}),
   due_at = CASE WHEN o.due_at IS NULL THEN NULL WHEN COALESCE(o.deliver_at, 0) > COALESCE(u.retry_at, 0) THEN COALESCE(o.deliver_at, 0) ELSE COALESCE(u.retry_at, 0) END
  FROM {u:fail} JOIN {deferred} o {row deferred} ON o.lane = u.lane AND o.id = u.id
{plan}`,
	Defer: `INSERT INTO {deferred} (pos, {msg}, {state}, due_at)
OUTPUT inserted.lane, inserted.id
SELECT o.pos, {o.msg}, {o.state}, CASE WHEN u.aside <> 0 THEN NULL ELSE {due_at} END
  FROM {u:defer} JOIN {outbox} o {lock by id} ON o.lane = u.lane AND o.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM {deferred} p {deferred by id} WHERE p.lane = o.lane AND p.id = o.id)
{plan}`,
	BuryHot: `INSERT INTO {dead} (pos, {msg}, attempts, last_error, first_failed_at, reason, died_at)
SELECT o.pos, {o.msg}, u.attempts, u.reason, o.first_failed_at, u.reason, {now}
  FROM {u:bury} JOIN {outbox} o {lock by id} ON o.lane = u.lane AND o.id = u.id
{plan}`,
	BuryDeferred: `INSERT INTO {dead} (pos, {msg}, attempts, last_error, first_failed_at, reason, died_at)
SELECT o.pos, {o.msg}, u.attempts, u.reason, o.first_failed_at, u.reason, {now}
  FROM {u:bury} JOIN {deferred} o {lock deferred} ON o.lane = u.lane AND o.id = u.id
{plan}`,
	DropDead: `DELETE o FROM {u:id} JOIN {dead} o {row dead} ON o.id = u.id {plan}`,
	Marks:    `UPDATE k SET tried_to = u.pos FROM {u:lane+pos} JOIN {lane_marks} k {one row} ON k.lane = u.lane AND k.tried_to < u.pos {plan}`,
	// Locked are those that are moved, and not all that are looked at in every lane.
	Due: limited{`SELECT o.lane, o.id, o.ordering_key
  FROM (SELECT TOP (@p2) u.ord, x.lane, x.id, x.due_at, x.pos
          FROM {u:lane}
         CROSS APPLY (SELECT TOP ({LIMIT}) d.lane, d.id, d.due_at, d.pos FROM {deferred} d WITH (INDEX ({=deferred_due}), FORCESEEK)
                       WHERE d.lane = u.lane AND d.due_at <= {now} AND (d.claim_until IS NULL OR d.claim_until <= {now})
                       ORDER BY d.due_at, d.pos) x
         ORDER BY u.ord, x.due_at, x.pos) c
  JOIN {deferred} o {lock deferred unless locked} ON o.lane = c.lane AND o.id = c.id
 WHERE o.due_at <= {now} AND (o.claim_until IS NULL OR o.claim_until <= {now})
 ORDER BY c.ord, c.due_at, c.pos
{plan}`},
	Promote: `INSERT INTO {outbox} (pos, {msg}, {state})
OUTPUT {inserted.row}
SELECT {drawn} (ORDER BY u.ord), {d.msg}, {d.state}
  FROM {u:lane+id} JOIN {deferred} d {lock deferred} ON d.lane = u.lane AND d.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM {outbox} p {range by id} WHERE p.lane = d.lane AND p.id = d.id)
{plan}`,
	NextDue: `SELECT MIN(x.due_at) FROM {u:lane}
 CROSS APPLY (SELECT TOP (1) o.due_at FROM {deferred} o WITH (INDEX ({=deferred_due}), FORCESEEK) WHERE o.lane = u.lane AND o.due_at IS NOT NULL
                 AND (o.claim_until IS NULL OR o.claim_until <= {now} OR o.claim_until <= o.due_at)
               ORDER BY o.due_at, o.pos) x
{plan}`,
	NextClaimed: `SELECT MIN(x.claim_until) FROM {u:lane}
 CROSS APPLY (SELECT TOP (1024) o.claim_until FROM {deferred} o WITH (INDEX ({=deferred_due}), FORCESEEK) WHERE o.lane = u.lane AND o.due_at <= {now}
               ORDER BY o.due_at, o.pos) x
 WHERE x.claim_until > {now}
{plan}`,

	Park: `UPDATE k SET unparking = 0, why = u.why, parked_by = @p2, parked_at = {now}
  FROM {u:park} JOIN {parked_keys} k {one row} ON k.lane = u.lane AND k.key_hash = u.key_hash AND k.ordering_key = u.ordering_key AND k.unparking <> 0
{plan};
INSERT INTO {parked_keys} (lane, key_hash, ordering_key, why, parked_by, parked_at)
SELECT u.lane, u.key_hash, u.ordering_key, u.why, @p2, {now} FROM {u:park}
 WHERE NOT EXISTS (SELECT 1 FROM {parked_keys} k WHERE k.lane = u.lane AND k.key_hash = u.key_hash AND k.ordering_key = u.ordering_key)
{plan}`,
	Unpark: `UPDATE {parked_keys} SET unparking = 1 WHERE lane = {lane:1} AND key_hash = @p2 AND ordering_key = @p3 AND unparking = 0`,
	Lift: `DELETE k OUTPUT deleted.lane, deleted.ordering_key
  FROM {u:key} JOIN {parked_keys} k {one row} ON k.lane = u.lane AND k.key_hash = u.key_hash AND k.ordering_key = u.ordering_key
 WHERE k.unparking <> 0
   AND NOT EXISTS (SELECT 1 FROM {deferred} o WITH (INDEX ({=deferred_parked}), FORCESEEK)
                    WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.due_at IS NULL AND o.ordering_key = u.ordering_key)
{plan}`,
	Parked: `SELECT lane, key_hash, ordering_key, unparking, parked_by, parked_at, why FROM {parked_keys}`,
	// Without locks, which would wait for rows that are being inserted: what is found
	// is locked where it is moved.
	ParkedRows: limited{`SELECT TOP (@p2) x.lane, x.id FROM {u:key}
 CROSS APPLY (SELECT TOP ({LIMIT}) o.lane, o.id FROM {outbox} o {range by key}
               WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key
               ORDER BY o.pos) x
{plan}`},
	AsideRows: limited{`SELECT TOP (@p2) x.lane, x.id FROM {u:key}
 CROSS APPLY (SELECT TOP ({LIMIT}) o.lane, o.id FROM {deferred} o WITH (INDEX ({=deferred_parked}), FORCESEEK)
               WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.due_at IS NULL AND o.ordering_key = u.ordering_key
               ORDER BY o.pos) x
{plan}`},
	// A number may not be drawn on a condition: those whose place is taken come last.
	Return: `INSERT INTO {outbox} (pos, {msg}, {state})
SELECT d.pos, {d.msg}, {d.state}
  FROM {u:lane+id} JOIN {deferred} d {lock deferred} ON d.lane = u.lane AND d.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM {outbox} p {range by id} WHERE p.lane = d.lane AND p.id = d.id)
   AND NOT EXISTS (SELECT 1 FROM {outbox} p {range by pos} WHERE p.lane = d.lane AND p.pos = d.pos)
{plan};
INSERT INTO {outbox} (pos, {msg}, {state})
SELECT {drawn} (ORDER BY d.lane, d.pos), {d.msg}, {d.state}
  FROM {u:lane+id} JOIN {deferred} d {lock deferred} ON d.lane = u.lane AND d.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM {outbox} p {range by id} WHERE p.lane = d.lane AND p.id = d.id)
{plan}`,
	SeenConfig:  `UPDATE k SET config_seen = u.config FROM {u:config} JOIN {lane_marks} k {one row} ON k.lane = u.lane AND k.config_seen < u.config {plan}`,
	RaiseConfig: `UPDATE l SET config = l.config + 1 FROM {u:lane} JOIN {lanes} l {one row} ON l.lane = u.lane {plan}`,
	CountAside:  `SELECT COUNT_BIG(*) FROM {deferred} WHERE lane BETWEEN {lane:1} AND {lane:2}`,
	CountParked: `SELECT COUNT_BIG(*) FROM {parked_keys} WHERE lane BETWEEN {lane:1} AND {lane:2}`,
	Audit:       `INSERT INTO {audit} (at, done_by, what, how_many, detail) VALUES ({now}, @p1, @p2, @p3, @p4)`,
	LaneOwners:  `SELECT lane, owner FROM {lanes} WHERE owner IS NOT NULL`,
	ListDead: limited{`SELECT TOP ({LIMIT}) {dead columns}
  FROM {dead} WITH (INDEX ({=dead_time}), FORCESEEK) WHERE {after} ORDER BY died_at, id OPTION (MAXDOP 1)`},
	ListDeadOf: limited{`SELECT TOP ({LIMIT}) {dead columns}
  FROM {dead} WITH (INDEX ({=dead_route}), FORCESEEK) WHERE transport = @p4 AND {after} ORDER BY died_at, id OPTION (MAXDOP 1)`},
	CountDead:   `SELECT COUNT_BIG(*) FROM {dead}`,
	CountDeadOf: `SELECT COUNT_BIG(*) FROM {dead} WHERE transport = @p1`,
	Confirmed: `SELECT COUNT_BIG(*) FROM {u:lane} JOIN {lanes} l ON l.lane = u.lane
  JOIN {lane_marks} m ON m.lane = l.lane JOIN {relays} r ON r.owner = l.owner
 WHERE m.config_seen < l.config AND r.ended = 0 AND r.expires_at > {now}`,
	LanesOfDead: `SELECT d.lane FROM {u:id} JOIN {dead} d WITH (INDEX ({=dead_pk}), FORCESEEK) ON d.id = u.id {plan}`,
	LockDead:    `SELECT d.id, d.lane, d.transport, d.ordering_key, d.later_out FROM {u:id} JOIN {dead} d {lock dead} ON d.id = u.id {plan}`,
	Replay: `SET NOCOUNT ON;
DECLARE @back TABLE (id BINARY(16) NOT NULL);
INSERT INTO {outbox} (pos, {msg})
OUTPUT inserted.id INTO @back (id)
SELECT d.pos, {d.msg}
  FROM {u:id} JOIN {dead} d {lock dead} ON d.id = u.id
 WHERE d.pos > 0 AND NOT EXISTS (SELECT 1 FROM {outbox} p {range by id} WHERE p.lane = d.lane AND p.id = d.id)
   AND NOT EXISTS (SELECT 1 FROM {outbox} p {range by pos} WHERE p.lane = d.lane AND p.pos = d.pos)
{plan};
INSERT INTO {outbox} (pos, {msg})
OUTPUT inserted.id INTO @back (id)
SELECT {drawn} (ORDER BY d.lane, d.pos), {d.msg}
  FROM {u:id} JOIN {dead} d {lock dead} ON d.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM {outbox} p {range by id} WHERE p.lane = d.lane AND p.id = d.id)
{plan};
SELECT id FROM @back`,

	Reserve: `{message lock}UPDATE {inbox} SET processed_at = @p3, expires_at = CONVERT(BIGINT, @p4), token = NULL WHERE {message} AND expires_at <= @p3;
IF @@ROWCOUNT = 0
INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at)
SELECT @p1, @p2, @p3, CONVERT(BIGINT, @p4) WHERE NOT EXISTS (SELECT 1 FROM {inbox} WHERE {message})`,
	Processed: `SELECT COUNT(*) FROM {inbox} WHERE consumer = @p2 AND message_id = @p3 AND token IS NULL AND (expires_at IS NULL OR expires_at > @p1)`,
	MarkInbox: `{message lock}UPDATE {inbox} SET processed_at = @p3, expires_at = CONVERT(BIGINT, @p4), token = NULL WHERE {message};
IF @@ROWCOUNT = 0
INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at) VALUES (@p1, @p2, @p3, CONVERT(BIGINT, @p4))`,
	PurgeInbox: limited{`WITH x AS (SELECT TOP ({LIMIT}) * FROM {inbox} WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX ({=inbox_expiry}), FORCESEEK)
 WHERE expires_at <= @p1 ORDER BY expires_at)
DELETE FROM x`},
	ClaimInbox: `{message lock}UPDATE {inbox} SET processed_at = @p3, expires_at = @p4, token = @p5 WHERE {message} AND expires_at <= @p3;
IF @@ROWCOUNT = 0
INSERT INTO {inbox} (consumer, message_id, processed_at, expires_at, token)
SELECT @p1, @p2, @p3, @p4, @p5 WHERE NOT EXISTS (SELECT 1 FROM {inbox} WHERE {message})`,
	InboxToken: `SELECT token FROM {inbox} WHERE {message}`,
	RenewInbox: `UPDATE {inbox} SET expires_at = CASE WHEN expires_at > @p4 THEN expires_at ELSE @p4 END
 WHERE {message} AND token = @p5 AND expires_at > @p3`,
	CompleteInbox: `UPDATE {inbox} SET processed_at = @p3, expires_at = CONVERT(BIGINT, @p4), token = NULL WHERE {message} AND token = @p5`,
	ReleaseInbox:  `DELETE FROM {inbox} WHERE {message} AND token = @p3`,
}
