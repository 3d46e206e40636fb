SELECT o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END
  FROM [postrider_lanes] l JOIN [postrider_outbox] o WITH (UPDLOCK, ROWLOCK, INDEX ([postrider_outbox_id]), FORCESEEK) ON o.lane = l.lane AND o.id = CONVERT(BINARY(16), @p2) WHERE o.claim_token = @p3 AND o.claim_until > @p1 OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
