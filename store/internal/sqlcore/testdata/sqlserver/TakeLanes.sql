UPDATE l SET unclean = CASE WHEN l.owner IS NULL THEN 0 ELSE 1 END, owner = CONVERT(BINARY(16), @p2), epoch = l.epoch + 1
  FROM (SELECT j.ord, j.lane AS lane FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]') j) u JOIN [postrider_lanes] l WITH (ROWLOCK, FORCESEEK) ON l.lane = u.lane OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
