SELECT u.lane, u.key_hash, d.pos FROM (SELECT CAST(substr(?2, value + 0, 20) AS INTEGER) AS lane, CAST(substr(?2, value + 20, 20) AS INTEGER) AS key_hash, CAST(substr(?2, value + 40, 20) AS INTEGER) AS below, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_dead" d
 WHERE d.rowid = (SELECT p.rowid FROM "postrider_dead" p WHERE p.lane = u.lane AND p.key_hash IS NOT NULL AND p.key_hash = u.key_hash AND p.pos < u.below
                   ORDER BY p.pos DESC LIMIT 1 OFFSET 1023)
