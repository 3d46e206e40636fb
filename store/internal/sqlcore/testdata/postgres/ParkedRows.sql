SELECT o.lane, o.id FROM unnest($1::integer[], $2::bigint[], $3::bytea[]) AS u(lane, key_hash, ordering_key)
 CROSS JOIN LATERAL (SELECT o.lane, o.id FROM "postrider_outbox" o
   WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key
   ORDER BY o.pos + 0 LIMIT 32 FOR UPDATE) o
 LIMIT $4::integer
