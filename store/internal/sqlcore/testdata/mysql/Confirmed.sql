SELECT count(*) FROM (SELECT j.lane AS lane, j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY, lane BIGINT PATH '$[0]')) j) u STRAIGHT_JOIN `postrider_lanes` l ON l.lane = u.lane
  JOIN `postrider_lane_marks` m ON m.lane = l.lane JOIN `postrider_relays` r ON r.owner = l.owner
 WHERE m.config_seen < l.config AND r.ended = 0 AND r.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))
