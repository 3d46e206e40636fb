SELECT o.lane, o.pos, o.id FROM (SELECT value ->> 0 AS lane, value ->> 1 AS key_hash, unhex(value ->> 2) AS ordering_key, key + 1 AS ord FROM json_each(?1)) u
 CROSS JOIN "postrider_outbox" o ON o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key
 ORDER BY o.lane, o.pos LIMIT ?2
