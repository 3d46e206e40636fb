SELECT o.lane, o.id, o.ordering_key
  FROM (SELECT TOP (@p2) u.ord, x.lane, x.id, x.due_at, x.pos
          FROM (SELECT j.ord, j.lane AS lane FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]') j) u
         CROSS APPLY (SELECT TOP (32) d.lane, d.id, d.due_at, d.pos FROM [postrider_deferred] d WITH (INDEX ([postrider_deferred_due]), FORCESEEK)
                       WHERE d.lane = u.lane AND d.due_at <= DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()) AND (d.claim_until IS NULL OR d.claim_until <= DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()))
                       ORDER BY d.due_at, d.pos) x
         ORDER BY u.ord, x.due_at, x.pos) c
  JOIN [postrider_deferred] o WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX ([postrider_deferred_pk]), FORCESEEK) ON o.lane = c.lane AND o.id = c.id
 WHERE o.due_at <= DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()) AND (o.claim_until IS NULL OR o.claim_until <= DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()))
 ORDER BY c.ord, c.due_at, c.pos
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
