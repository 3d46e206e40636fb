SELECT u.ord, o.lane, o.pos, o.id, o.key_hash, o.size
  FROM (SELECT j.ord, j.lane AS lane, j.after AS after, j.upto AS upto FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', after BIGINT '$[2]', upto BIGINT '$[3]') j) u
 CROSS APPLY (SELECT TOP (32) o.lane, o.pos, o.id, o.key_hash, COALESCE(DATALENGTH(o.body), 0) AS size
                FROM [postrider_outbox] o WITH (INDEX ([postrider_outbox_pk]), FORCESEEK) WHERE o.lane = u.lane AND o.pos > u.after AND o.pos <= u.upto
               ORDER BY o.pos) o
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
