UPDATE "postrider_lane_marks" k SET tried_to = u.pos FROM unnest($1::integer[], $2::bigint[]) AS u(lane, pos)
 WHERE k.lane = u.lane AND k.tried_to < u.pos
