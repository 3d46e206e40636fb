SELECT l.lane, l.route, l.epoch, l.config, l.unclean, m.tried_to FROM "postrider_lanes" l JOIN "postrider_lane_marks" m ON m.lane = l.lane
 WHERE l.owner = ?1 ORDER BY l.lane
