SELECT o.lane, o.id FROM (SELECT CAST(substr(?2, value + 0, 20) AS INTEGER) AS lane, CAST(substr(?2, value + 20, 20) AS INTEGER) AS key_hash, substr(?2, value + nullif(CAST(substr(?2, value + 40, 10) AS INTEGER), 0), CAST(substr(?2, value + 50, 10) AS INTEGER)) AS ordering_key, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_outbox" o
 WHERE o.pos IN (SELECT p.pos FROM "postrider_outbox" p INDEXED BY "postrider_outbox_key" WHERE p.lane = u.lane AND p.key_hash = u.key_hash AND p.ordering_key = u.ordering_key
                  ORDER BY p.pos LIMIT 32)
 LIMIT ?3
