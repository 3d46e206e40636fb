SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM (SELECT j.ord, j.lane AS lane, j.pos AS pos, CONVERT(BINARY(16), j.id, 2) AS id FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', pos BIGINT '$[2]', id CHAR(32) '$[3]') j) u JOIN [postrider_outbox] o WITH (UPDLOCK, ROWLOCK, INDEX ([postrider_outbox_pk]), FORCESEEK) ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
