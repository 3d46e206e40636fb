WITH f AS MATERIALIZED (
  SELECT l.lane, m.pos FROM "postrider_lanes" l JOIN unnest($5::integer[], $6::bigint[], $7::bigint[]) AS m(lane, epoch, pos)
      ON l.lane = m.lane AND l.epoch = m.epoch
   WHERE l.owner = $8::uuid ORDER BY l.lane FOR SHARE OF l),
k AS (UPDATE "postrider_lane_marks" k SET tried_to = f.pos FROM f WHERE k.lane = f.lane AND k.tried_to < f.pos)
DELETE FROM "postrider_outbox" o USING unnest($1::integer[], $2::bigint[], $3::uuid[], $4::tid[]) AS u(lane, pos, id, hint)
 WHERE o.ctid = u.hint AND o.lane = u.lane AND o.pos = u.pos AND o.id = u.id RETURNING o.id
