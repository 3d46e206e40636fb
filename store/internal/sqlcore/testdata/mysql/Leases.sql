SELECT l.lane, l.route, l.epoch, l.config, l.unclean, m.tried_to,
  CASE WHEN (SELECT d.key_hash FROM `postrider_dead` d FORCE INDEX (`postrider_dead_key`) WHERE d.lane = l.lane ORDER BY d.lane DESC, d.key_hash DESC LIMIT 1) IS NULL THEN 0 ELSE 1 END
  FROM `postrider_lanes` l JOIN `postrider_lane_marks` m ON m.lane = l.lane
 WHERE l.owner = ?1 ORDER BY l.lane
