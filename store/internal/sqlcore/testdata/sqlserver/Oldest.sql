SELECT MIN(x.created_at) FROM (
  SELECT h.created_at FROM [postrider_lanes] l CROSS APPLY (SELECT TOP (128) o.created_at FROM [postrider_outbox] o WITH (INDEX ([postrider_outbox_pk]), FORCESEEK) WHERE o.lane = l.lane
    AND (o.deliver_at IS NULL OR o.deliver_at <= @p1) AND (o.retry_at IS NULL OR o.retry_at <= @p1)
    AND (o.claim_until IS NULL OR o.claim_until <= @p1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM [postrider_parked_keys] k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.pos) h
  UNION ALL
  SELECT h.created_at FROM [postrider_lanes] l CROSS APPLY (SELECT TOP (128) o.created_at FROM [postrider_deferred] o WITH (INDEX ([postrider_deferred_due]), FORCESEEK) WHERE o.lane = l.lane
    AND o.due_at <= @p1 AND (o.claim_until IS NULL OR o.claim_until <= @p1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM [postrider_parked_keys] k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.due_at, o.pos) h) x OPTION (MAXDOP 1)
