SELECT l.lane, l.owner, CASE WHEN EXISTS (SELECT 1 FROM `postrider_relays` r WHERE r.owner = l.owner) THEN 1 ELSE 0 END
  FROM `postrider_lanes` l FORCE INDEX (PRIMARY)
 WHERE l.lane BETWEEN ?1 AND ?2
   AND NOT EXISTS (SELECT 1 FROM `postrider_relays` r WHERE r.owner = l.owner AND r.ended = 0 AND r.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))
 ORDER BY l.lane LIMIT ?3 FOR UPDATE SKIP LOCKED
