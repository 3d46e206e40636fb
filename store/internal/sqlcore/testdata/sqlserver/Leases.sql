SELECT l.lane, l.route, l.epoch, l.config, l.unclean, m.tried_to,
  CASE WHEN EXISTS (SELECT 1 FROM [postrider_dead] d WITH (INDEX ([postrider_dead_key]), FORCESEEK) WHERE d.lane = l.lane AND d.key_hash IS NOT NULL) THEN 1 ELSE 0 END
  FROM [postrider_lanes] l JOIN [postrider_lane_marks] m ON m.lane = l.lane
 WHERE l.owner = CONVERT(BINARY(16), @p1) ORDER BY l.lane
