SELECT o.lane, o.id FROM unnest($1::integer[], $2::bigint[], $3::bytea[]) AS u(lane, key_hash, ordering_key)
 CROSS JOIN LATERAL (SELECT o.lane, o.id FROM "postrider_outbox" o
   WHERE o.lane = u.lane AND o.key_hash IS NOT NULL AND o.ordering_key = u.ordering_key AND (o.key_hash, o.pos) > (u.key_hash, 0)
     AND (o.key_hash, o.pos) <= (u.key_hash, 9223372036854775807)
   ORDER BY o.lane, o.key_hash, o.pos LIMIT 32 FOR UPDATE) o
 LIMIT $4::integer
