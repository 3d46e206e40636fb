SELECT o.lane, o.id FROM (SELECT value ->> 0 AS lane, value ->> 1 AS key_hash, unhex(value ->> 2) AS ordering_key, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_outbox" o
 WHERE o.pos IN (SELECT p.pos FROM "postrider_outbox" p INDEXED BY "postrider_outbox_key" WHERE p.lane = u.lane AND p.key_hash = u.key_hash AND p.ordering_key = u.ordering_key
                  ORDER BY p.pos LIMIT 32)
 LIMIT ?2
