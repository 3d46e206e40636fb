UPDATE o SET claim_token = @p4, claim_until = @p5 FROM [postrider_deferred] o WITH (ROWLOCK, INDEX ([postrider_deferred_pk]), FORCESEEK)
 WHERE o.lane = CONVERT(INT, @p2) AND o.id = CONVERT(BINARY(16), @p3)
    AND o.due_at <= @p1 AND (o.claim_until IS NULL OR o.claim_until <= @p1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM [postrider_parked_keys] k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key))
