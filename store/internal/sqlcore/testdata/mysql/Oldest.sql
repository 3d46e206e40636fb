SELECT min(x.created_at) FROM ([[
  UNION ALL |
  (SELECT o.created_at FROM `postrider_outbox` o FORCE INDEX (`postrider_outbox_lane`) WHERE o.lane = #1
    AND (o.deliver_at IS NULL OR o.deliver_at <= ?2) AND (o.retry_at IS NULL OR o.retry_at <= ?2)
    AND (o.claim_until IS NULL OR o.claim_until <= ?2) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM `postrider_parked_keys` k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.lane, o.pos LIMIT 128)
  UNION ALL
  (SELECT o.created_at FROM `postrider_deferred` o FORCE INDEX (`postrider_deferred_due`) WHERE o.lane = #1
    AND o.due_at <= ?2 AND (o.claim_until IS NULL OR o.claim_until <= ?2) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM `postrider_parked_keys` k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.lane, o.due_at, o.num LIMIT 128)]]) x
