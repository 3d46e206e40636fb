DELETE FROM "postrider_outbox" o USING unnest($1::integer[], $2::bigint[], $3::uuid[], $4::tid[]) AS u(lane, pos, id, hint)
 WHERE o.ctid = u.hint AND o.lane = u.lane AND o.pos = u.pos AND o.id = u.id RETURNING o.id
