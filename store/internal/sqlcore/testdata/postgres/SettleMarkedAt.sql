WITH f AS MATERIALIZED (
  SELECT l.lane, m.pos FROM "postrider_lanes" l JOIN unnest($5::integer[], $6::bigint[], $7::bigint[]) AS m(lane, epoch, pos)
      ON l.lane = m.lane AND l.epoch = m.epoch
   WHERE l.owner = $8::uuid ORDER BY l.lane FOR SHARE OF l),
k AS (UPDATE "postrider_lane_marks" k SET tried_to = f.pos FROM f WHERE k.lane = f.lane AND k.tried_to < f.pos)
DELETE FROM "postrider_outbox" o
 WHERE o.ctid = ANY ($4::tid[])
   AND o.pos = ($2::bigint[])[width_bucket(o.pos, $2::bigint[])]
   AND o.lane = ($1::integer[])[width_bucket(o.pos, $2::bigint[])]
   AND o.id = ($3::uuid[])[width_bucket(o.pos, $2::bigint[])] RETURNING o.id
