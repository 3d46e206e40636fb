SELECT u.lane, u.key_hash FROM (SELECT j.ord, j.lane AS lane, j.key_hash AS key_hash FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', key_hash BIGINT '$[2]') j) u
 CROSS APPLY (SELECT TOP (1) d.pos FROM [postrider_dead] d WITH (INDEX ([postrider_dead_key]), FORCESEEK) WHERE d.lane = u.lane AND d.key_hash = u.key_hash) x
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
