SELECT l.lane, l.owner, CASE WHEN r.owner IS NULL THEN 0 ELSE 1 END FROM "postrider_lanes" l LEFT JOIN "postrider_relays" r ON r.owner = l.owner
 WHERE l.lane BETWEEN ?1 AND ?2 AND (l.owner IS NULL OR r.owner IS NULL OR r.ended <> 0 OR r.expires_at <= CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))
 ORDER BY l.lane LIMIT ?3
