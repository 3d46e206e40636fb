UPDATE o SET claim_until = CASE WHEN o.claim_until > @p4 THEN o.claim_until ELSE @p4 END
  FROM [postrider_lanes] l JOIN [postrider_outbox] o WITH (ROWLOCK, INDEX ([postrider_outbox_id]), FORCESEEK) ON o.lane = l.lane AND o.id = CONVERT(BINARY(16), @p2) WHERE o.claim_token = @p3 AND o.claim_until > @p1 OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
