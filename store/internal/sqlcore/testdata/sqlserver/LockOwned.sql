SELECT l.lane FROM (SELECT TOP (100000) c.lane FROM [postrider_lanes] c WHERE c.owner = CONVERT(BINARY(16), @p1) ORDER BY c.lane) c
  JOIN [postrider_lanes] l WITH (XLOCK, ROWLOCK, FORCESEEK) ON l.lane = c.lane WHERE l.owner = CONVERT(BINARY(16), @p1) OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
