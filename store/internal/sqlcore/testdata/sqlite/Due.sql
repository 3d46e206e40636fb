SELECT o.lane, o.id, o.ordering_key FROM (SELECT CAST(substr(?2, value + 0, 20) AS INTEGER) AS lane, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_deferred" o
 WHERE o.rowid IN (SELECT d.rowid FROM "postrider_deferred" d WHERE d.lane = u.lane AND d.due_at <= CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER) AND (d.claim_until IS NULL OR d.claim_until <= CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))
                    ORDER BY d.lane, d.due_at, d.pos, d.rowid LIMIT 32)
 ORDER BY u.ord, o.due_at, o.pos, o.rowid LIMIT ?3
