SELECT COUNT_BIG(*) FROM (SELECT j.ord, j.lane AS lane FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]') j) u JOIN [postrider_lanes] l ON l.lane = u.lane
  JOIN [postrider_lane_marks] m ON m.lane = l.lane JOIN [postrider_relays] r ON r.owner = l.owner
 WHERE m.config_seen < l.config AND r.ended = 0 AND r.expires_at > DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME())
