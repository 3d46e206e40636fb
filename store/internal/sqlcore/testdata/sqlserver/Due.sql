SELECT TOP (@p2) x.lane, x.id, x.ordering_key
  FROM (SELECT j.ord, j.lane AS lane FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]') j) u
 CROSS APPLY (SELECT TOP (32) o.lane, o.id, o.ordering_key, o.due_at, o.pos
                FROM [postrider_deferred] o WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX ([postrider_deferred_due]), FORCESEEK)
               WHERE o.lane = u.lane AND o.due_at <= DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()) AND (o.claim_until IS NULL OR o.claim_until <= DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()))
               ORDER BY o.due_at, o.pos) x
 ORDER BY u.ord, x.due_at, x.pos
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
