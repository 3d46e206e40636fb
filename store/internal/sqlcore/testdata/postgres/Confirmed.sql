SELECT count(*) FROM unnest($1::integer[]) AS u(lane) JOIN "postrider_lanes" l ON l.lane = u.lane
  JOIN "postrider_lane_marks" m ON m.lane = l.lane JOIN "postrider_relays" r ON r.owner = l.owner
 WHERE m.config_seen < l.config AND r.ended = 0 AND r.expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
