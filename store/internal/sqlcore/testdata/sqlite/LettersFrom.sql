SELECT u.lane, u.key_hash, d.pos FROM (SELECT value ->> 0 AS lane, value ->> 1 AS key_hash, value ->> 2 AS below, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_dead" d
 WHERE d.rowid = (SELECT p.rowid FROM "postrider_dead" p WHERE p.lane = u.lane AND p.key_hash IS NOT NULL AND p.key_hash = u.key_hash AND p.pos < u.below
                   ORDER BY p.pos DESC LIMIT 1 OFFSET 1023)
