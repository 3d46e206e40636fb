DELETE k OUTPUT deleted.lane, deleted.ordering_key
  FROM (SELECT j.ord, j.lane AS lane, j.key_hash AS key_hash, CONVERT(VARBINARY(1024), j.ordering_key, 2) AS ordering_key FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', key_hash BIGINT '$[2]', ordering_key VARCHAR(2048) '$[3]') j) u JOIN [postrider_parked_keys] k WITH (ROWLOCK, FORCESEEK) ON k.lane = u.lane AND k.key_hash = u.key_hash AND k.ordering_key = u.ordering_key
 WHERE k.unparking <> 0
   AND NOT EXISTS (SELECT 1 FROM [postrider_deferred] o WITH (INDEX ([postrider_deferred_parked]), FORCESEEK)
                    WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.due_at IS NULL AND o.ordering_key = u.ordering_key)
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
