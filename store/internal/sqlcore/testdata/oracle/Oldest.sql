SELECT MIN(x.created_at) FROM (
  SELECT y.created_at FROM ([< UNION ALL |SELECT j.ord, j.lane FROM JSON_TABLE(CAST(?1 AS VARCHAR2(4000 BYTE)), '$[*]' COLUMNS (ord NUMBER PATH '$[0]', lane NUMBER PATH '$[1]')) j>]) u CROSS APPLY (SELECT /*+ INDEX(o (lane pos)) */ o.created_at FROM "postrider_outbox" o WHERE o.lane = u.lane
    AND (o.deliver_at IS NULL OR o.deliver_at <= ?2) AND (o.retry_at IS NULL OR o.retry_at <= ?2)
    AND (o.claim_until IS NULL OR o.claim_until <= ?2) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.pos FETCH FIRST 128 ROWS ONLY) y
  UNION ALL
  SELECT y.created_at FROM ([< UNION ALL |SELECT j.ord, j.lane FROM JSON_TABLE(CAST(?1 AS VARCHAR2(4000 BYTE)), '$[*]' COLUMNS (ord NUMBER PATH '$[0]', lane NUMBER PATH '$[1]')) j>]) u CROSS APPLY (SELECT /*+ INDEX(o (lane due_at pos)) */ o.created_at FROM "postrider_deferred" o WHERE o.lane = u.lane
    AND o.due_at <= ?2 AND (o.claim_until IS NULL OR o.claim_until <= ?2) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.due_at, o.pos FETCH FIRST 128 ROWS ONLY) y) x
