SELECT x.lane, x.id FROM ([[
  UNION ALL |
  (SELECT o.lane, o.id FROM `postrider_deferred` o FORCE INDEX (`postrider_deferred_parked`) WHERE o.lane = #1 AND o.key_hash = #2 AND o.ordering_key = #3 AND o.due_at IS NULL
    ORDER BY o.pos LIMIT 32)]]) x
 LIMIT ?2
