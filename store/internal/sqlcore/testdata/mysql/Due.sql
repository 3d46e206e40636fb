SELECT o.lane, o.id, o.ordering_key FROM ([[
  UNION ALL |
  (SELECT #0 AS ord, o.lane, o.id, o.due_at, o.num FROM `postrider_deferred` o FORCE INDEX (`postrider_deferred_due`)
    WHERE o.lane = #1 AND o.due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND (o.claim_until IS NULL OR o.claim_until <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) ORDER BY o.lane, o.due_at, o.num LIMIT 32)]]) x
  STRAIGHT_JOIN `postrider_deferred` o FORCE INDEX (PRIMARY) ON o.lane = x.lane AND o.id = x.id
 WHERE o.due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND (o.claim_until IS NULL OR o.claim_until <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))
 ORDER BY x.ord, x.due_at, x.num LIMIT ?2 FOR UPDATE SKIP LOCKED
