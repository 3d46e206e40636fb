SELECT l.lane, l.config FROM "postrider_lanes" l JOIN unnest($1::integer[], $2::bigint[]) AS u(lane, epoch) ON l.lane = u.lane AND l.epoch = u.epoch
 WHERE l.owner = $3::uuid ORDER BY l.lane FOR SHARE OF l
