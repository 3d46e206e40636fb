SELECT u.nr, u.key_hash, p.ordering_key, p.pos
  FROM (SELECT j.ord, j.nr AS nr, j.lane AS lane, j.key_hash AS key_hash, j.after AS after FROM OPENJSON(@p1) WITH (ord INT '$[0]', nr BIGINT '$[1]', lane INT '$[2]', key_hash BIGINT '$[3]', after BIGINT '$[4]') j) u
 CROSS APPLY (SELECT TOP (1) o.ordering_key, o.pos FROM [postrider_outbox] o WITH (INDEX ([postrider_outbox_key]), FORCESEEK)
               WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.pos <= u.after
               ORDER BY o.pos DESC) p
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
