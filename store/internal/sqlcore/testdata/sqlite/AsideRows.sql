SELECT o.lane, o.id FROM (SELECT value ->> 0 AS lane, value ->> 1 AS key_hash, unhex(value ->> 2) AS ordering_key, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_deferred" o
 WHERE o.rowid IN (SELECT p.rowid FROM "postrider_deferred" p INDEXED BY "postrider_deferred_parked" WHERE p.lane = u.lane AND p.key_hash = u.key_hash AND p.ordering_key = u.ordering_key AND p.due_at IS NULL
                    ORDER BY p.pos LIMIT 32)
 LIMIT ?2
