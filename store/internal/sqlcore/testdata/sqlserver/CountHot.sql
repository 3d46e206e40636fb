SELECT COUNT_BIG(*), MIN(o.created_at) FROM [postrider_outbox] o WHERE o.lane BETWEEN CONVERT(INT, @p2) AND CONVERT(INT, @p3)
    AND (o.deliver_at IS NULL OR o.deliver_at <= @p1) AND (o.retry_at IS NULL OR o.retry_at <= @p1)
    AND (o.claim_until IS NULL OR o.claim_until <= @p1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM [postrider_parked_keys] k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key))
