SELECT min(x.claim_until) FROM ([[
  UNION ALL |
  (SELECT o.claim_until FROM `postrider_deferred` o FORCE INDEX (`postrider_deferred_due`) WHERE o.lane = #1 AND o.due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))
    ORDER BY o.lane, o.due_at, o.num LIMIT 1024)]]) x
 WHERE x.claim_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))
