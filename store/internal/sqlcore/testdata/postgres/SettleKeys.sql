DELETE FROM "postrider_outbox" o USING unnest($1::integer[], $2::bigint[], $3::uuid[]) AS u(lane, pos, id)
 WHERE o.lane = u.lane AND o.pos = u.pos AND o.id = u.id RETURNING o.id, o.key_hash, o.ordering_key
