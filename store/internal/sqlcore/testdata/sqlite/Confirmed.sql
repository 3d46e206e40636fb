SELECT count(*) FROM (SELECT CAST(substr(?2, value + 0, 20) AS INTEGER) AS lane, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_lanes" l ON l.lane = u.lane
  JOIN "postrider_lane_marks" m ON m.lane = l.lane JOIN "postrider_relays" r ON r.owner = l.owner
 WHERE m.config_seen < l.config AND r.ended = 0 AND r.expires_at > CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)
