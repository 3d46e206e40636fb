SELECT u.lane, u.key_hash, p.ordering_key, p.pos
  FROM (SELECT j.ord, j.lane AS lane, j.key_hash AS key_hash, j.above AS above, j.after AS after FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', key_hash BIGINT '$[2]', above BIGINT '$[3]', after BIGINT '$[4]') j) u
 CROSS APPLY (SELECT TOP (1) o.ordering_key, o.pos FROM [postrider_outbox] o WITH (INDEX ([postrider_outbox_key]), FORCESEEK)
               WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.pos > u.above AND o.pos <= u.after
               ORDER BY o.pos DESC) p
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
