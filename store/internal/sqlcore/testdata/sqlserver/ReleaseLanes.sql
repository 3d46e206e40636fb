UPDATE l SET owner = NULL, unclean = 0 FROM (SELECT j.ord, j.lane AS lane FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]') j) u JOIN [postrider_lanes] l WITH (ROWLOCK, FORCESEEK) ON l.lane = u.lane
 WHERE l.owner = CONVERT(BINARY(16), @p2) OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
