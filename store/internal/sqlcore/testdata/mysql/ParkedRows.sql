SELECT x.lane, x.id FROM ([[
  UNION ALL |
  (SELECT o.lane, o.id FROM `postrider_outbox` o FORCE INDEX (`postrider_outbox_key`) WHERE o.lane = #1 AND o.key_hash = #2 AND o.ordering_key = #3
    ORDER BY o.pos LIMIT 32)]]) x
 LIMIT ?2
