SELECT u.lane, u.key_hash FROM unnest($1::integer[], $2::bigint[]) AS u(lane, key_hash)
 WHERE (SELECT 1 FROM "postrider_dead" d WHERE d.lane = u.lane AND d.key_hash IS NOT NULL AND d.key_hash = u.key_hash LIMIT 1) IS NOT NULL
