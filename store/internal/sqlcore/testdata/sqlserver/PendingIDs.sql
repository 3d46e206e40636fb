SELECT u.id FROM (SELECT j.ord, CONVERT(BINARY(16), j.id, 2) AS id FROM OPENJSON(@p1) WITH (ord INT '$[0]', id CHAR(32) '$[1]') j) u
 CROSS APPLY (SELECT TOP (1) h.lane FROM (SELECT p.lane FROM [postrider_lanes] l WITH (READCOMMITTED) JOIN [postrider_outbox] p WITH (READCOMMITTED, INDEX ([postrider_outbox_id]), FORCESEEK) ON p.lane = l.lane AND p.id = u.id
                WHERE l.lane BETWEEN CONVERT(INT, @p2 / CONVERT(BIGINT, 4294967296)) AND CONVERT(INT, @p2 / CONVERT(BIGINT, 4294967296) + @p2 % CONVERT(BIGINT, 4294967296) - 1)
   UNION ALL SELECT p.lane FROM [postrider_lanes] l WITH (READCOMMITTED) JOIN [postrider_deferred] p WITH (READCOMMITTED, INDEX ([postrider_deferred_pk]), FORCESEEK) ON p.lane = l.lane AND p.id = u.id
                WHERE l.lane BETWEEN CONVERT(INT, @p2 / CONVERT(BIGINT, 4294967296)) AND CONVERT(INT, @p2 / CONVERT(BIGINT, 4294967296) + @p2 % CONVERT(BIGINT, 4294967296) - 1)) h) f
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
