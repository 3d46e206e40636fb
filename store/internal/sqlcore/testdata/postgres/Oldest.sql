SELECT min(x.created_at) FROM (
  SELECT o.created_at FROM "postrider_lanes" l CROSS JOIN LATERAL
   (SELECT o.created_at FROM "postrider_outbox" o WHERE o.lane = l.lane
    AND (o.deliver_at IS NULL OR o.deliver_at <= $1::bigint) AND (o.retry_at IS NULL OR o.retry_at <= $1::bigint)
    AND (o.claim_until IS NULL OR o.claim_until <= $1::bigint) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.lane, o.pos LIMIT 128) o
  UNION ALL
  SELECT o.created_at FROM "postrider_lanes" l CROSS JOIN LATERAL
   (SELECT o.created_at FROM "postrider_deferred" o WHERE o.lane = l.lane
    AND o.due_at <= $1::bigint AND (o.claim_until IS NULL OR o.claim_until <= $1::bigint) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.lane, o.due_at, o.pos LIMIT 128) o) x
