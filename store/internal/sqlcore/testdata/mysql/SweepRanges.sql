[[
UNION ALL |
(SELECT #0, o.lane, o.pos, o.id, o.key_hash, COALESCE(OCTET_LENGTH(o.body), 0)
  FROM `postrider_outbox` o FORCE INDEX (`postrider_outbox_lane`) WHERE o.lane = #1 AND o.pos > #2 AND o.pos <= #3 ORDER BY o.pos LIMIT 32)]]
