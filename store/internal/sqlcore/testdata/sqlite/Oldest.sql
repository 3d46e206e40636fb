SELECT min(created_at) FROM (
  SELECT d.created_at FROM "postrider_lanes" l CROSS JOIN "postrider_outbox" d WHERE d.pos IN
   (SELECT o.pos FROM "postrider_outbox" o WHERE o.lane = l.lane
    AND (o.deliver_at IS NULL OR o.deliver_at <= ?1) AND (o.retry_at IS NULL OR o.retry_at <= ?1)
    AND (o.claim_until IS NULL OR o.claim_until <= ?1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.lane, o.pos LIMIT 128)
  UNION ALL
  SELECT d.created_at FROM "postrider_lanes" l CROSS JOIN "postrider_deferred" d WHERE d.rowid IN
   (SELECT o.rowid FROM "postrider_deferred" o WHERE o.lane = l.lane
    AND o.due_at <= ?1 AND (o.claim_until IS NULL OR o.claim_until <= ?1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.lane, o.due_at, o.pos LIMIT 128))
