SELECT u.lane, u.key_hash FROM (SELECT CAST(substr(?2, value + 0, 20) AS INTEGER) AS lane, CAST(substr(?2, value + 20, 20) AS INTEGER) AS key_hash, key + 1 AS ord FROM json_each(?1)) u
 WHERE EXISTS (SELECT 1 FROM "postrider_dead" d WHERE d.lane = u.lane AND d.key_hash IS NOT NULL AND d.key_hash = u.key_hash)
