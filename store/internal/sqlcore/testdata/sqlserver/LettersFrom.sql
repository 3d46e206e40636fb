SELECT u.lane, u.key_hash, x.pos FROM (SELECT j.ord, j.lane AS lane, j.key_hash AS key_hash, j.below AS below FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', key_hash BIGINT '$[2]', below BIGINT '$[3]') j) u
 CROSS APPLY (SELECT d.pos FROM [postrider_dead] d WITH (INDEX ([postrider_dead_key]), FORCESEEK) WHERE d.lane = u.lane AND d.key_hash = u.key_hash AND d.pos < u.below
               ORDER BY d.pos DESC OFFSET 1023 ROWS FETCH NEXT 1 ROWS ONLY) x
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
