SELECT o.lane FROM [postrider_lanes] l JOIN [postrider_outbox] o WITH (INDEX ([postrider_outbox_id])) ON o.lane = l.lane AND o.id = CONVERT(BINARY(16), @p1)
UNION ALL SELECT o.lane FROM [postrider_lanes] l JOIN [postrider_deferred] o WITH (INDEX ([postrider_deferred_pk]), FORCESEEK) ON o.lane = l.lane AND o.id = CONVERT(BINARY(16), @p1) OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
