SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM unnest($1::integer[], $2::bigint[], $3::uuid[]) AS u(lane, pos, id)
  JOIN "postrider_outbox" o ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id ORDER BY o.lane, o.pos FOR UPDATE OF o
