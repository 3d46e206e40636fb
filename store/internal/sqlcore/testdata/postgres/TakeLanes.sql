UPDATE "postrider_lanes" l SET unclean = CASE WHEN l.owner IS NULL THEN 0 ELSE 1 END, owner = $2::uuid, epoch = l.epoch + 1
  FROM unnest($1::integer[]) AS u(lane) WHERE l.lane = u.lane
