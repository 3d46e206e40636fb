SELECT l.lane, l.route, l.epoch, l.config, l.unclean, m.tried_to,
  CASE WHEN (SELECT 1 FROM "postrider_dead" d WHERE d.lane = l.lane AND d.key_hash IS NOT NULL ORDER BY d.lane, d.key_hash, d.pos LIMIT 1) IS NULL THEN 0 ELSE 1 END
  FROM "postrider_lanes" l JOIN "postrider_lane_marks" m ON m.lane = l.lane
 WHERE l.owner = $1::uuid ORDER BY l.lane
