UPDATE "postrider_lane_marks" k SET config_seen = u.config FROM unnest($1::integer[], $2::bigint[]) AS u(lane, config)
 WHERE k.lane = u.lane AND k.config_seen < u.config
