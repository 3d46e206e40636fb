SELECT o.lane, o.pos, o.id FROM unnest($1::integer[], $2::bigint[], $3::bytea[]) AS u(lane, key_hash, ordering_key)
  JOIN "postrider_deferred" o ON o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key AND o.due_at IS NULL
 ORDER BY o.lane, o.pos LIMIT $4::integer FOR UPDATE OF o
