SELECT MIN(x.claim_until) FROM (SELECT j.ord, j.lane AS lane FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]') j) u
 CROSS APPLY (SELECT TOP (1024) o.claim_until FROM [postrider_deferred] o WITH (INDEX ([postrider_deferred_due]), FORCESEEK) WHERE o.lane = u.lane AND o.due_at <= DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME())
               ORDER BY o.due_at, o.pos) x
 WHERE x.claim_until > DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME())
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
