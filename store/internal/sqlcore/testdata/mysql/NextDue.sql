SELECT min(x.due_at) FROM ([[
  UNION ALL |
  (SELECT o.due_at FROM `postrider_deferred` o FORCE INDEX (`postrider_deferred_due`) WHERE o.lane = #1 AND o.due_at IS NOT NULL
      AND (o.claim_until IS NULL OR o.claim_until <= GREATEST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), o.due_at))
    ORDER BY o.lane, o.due_at, o.num LIMIT 1)]]) x
