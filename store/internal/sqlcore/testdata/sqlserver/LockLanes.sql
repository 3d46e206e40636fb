SELECT l.lane FROM (SELECT j.ord, j.lane AS lane, j.epoch AS epoch FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', epoch BIGINT '$[2]') j) u JOIN [postrider_lanes] l WITH (XLOCK, ROWLOCK, FORCESEEK) ON l.lane = u.lane AND l.epoch = u.epoch
 WHERE l.owner = CONVERT(BINARY(16), @p2) OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
