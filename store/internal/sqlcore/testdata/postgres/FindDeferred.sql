SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM unnest($1::integer[], $2::bigint[], $3::uuid[]) AS u(lane, pos, id)
  JOIN "postrider_deferred" o ON o.lane = u.lane AND o.id = u.id AND o.pos = u.pos ORDER BY o.lane, o.pos FOR UPDATE OF o
