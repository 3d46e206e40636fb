SELECT u.lane, u.key_hash, o.pos FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS u(lane, key_hash, below)
 CROSS JOIN LATERAL (SELECT d.pos FROM "postrider_dead" d WHERE d.lane = u.lane AND d.key_hash IS NOT NULL AND d.key_hash = u.key_hash AND d.pos < u.below
                      ORDER BY d.lane DESC, d.key_hash DESC, d.pos DESC OFFSET 1023 LIMIT 1) o
