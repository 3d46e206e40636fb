SELECT l.lane, l.route, l.epoch, l.config, l.unclean, m.tried_to,
  EXISTS (SELECT 1 FROM "postrider_dead" d WHERE d.lane = l.lane AND d.key_hash IS NOT NULL)
  FROM "postrider_lanes" l JOIN "postrider_lane_marks" m ON m.lane = l.lane
 WHERE l.owner = ?1 ORDER BY l.lane
