SELECT TOP (@p2) x.lane, x.id FROM (SELECT j.ord, j.lane AS lane, j.key_hash AS key_hash, CONVERT(VARBINARY(1024), j.ordering_key, 2) AS ordering_key FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', key_hash BIGINT '$[2]', ordering_key VARCHAR(2048) '$[3]') j) u
 CROSS APPLY (SELECT TOP (32) o.lane, o.id FROM [postrider_outbox] o WITH (INDEX ([postrider_outbox_key]), FORCESEEK)
               WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key
               ORDER BY o.pos) x
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
