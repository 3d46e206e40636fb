SELECT MIN(x.due_at) FROM (SELECT j.ord, j.lane AS lane FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]') j) u
 CROSS APPLY (SELECT TOP (1) o.due_at FROM [postrider_deferred] o WITH (INDEX ([postrider_deferred_due]), FORCESEEK) WHERE o.lane = u.lane AND o.due_at IS NOT NULL
                 AND (o.claim_until IS NULL OR o.claim_until <= DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()) OR o.claim_until <= o.due_at)
               ORDER BY o.due_at, o.pos) x
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
