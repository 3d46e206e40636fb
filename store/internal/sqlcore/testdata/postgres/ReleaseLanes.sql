UPDATE "postrider_lanes" l SET owner = NULL, unclean = 0 FROM unnest($1::integer[]) AS u(lane)
 WHERE l.lane = u.lane AND l.owner = $2::uuid
