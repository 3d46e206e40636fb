UPDATE d SET later_out = d.later_out + u.more
  FROM (SELECT j.ord, j.lane AS lane, j.key_hash AS key_hash, CONVERT(VARBINARY(1024), j.ordering_key, 2) AS ordering_key, j.start AS start, j.below AS below, j.more AS more FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', key_hash BIGINT '$[2]', ordering_key VARCHAR(2048) '$[3]', start BIGINT '$[4]', below BIGINT '$[5]', more BIGINT '$[6]') j) u
  JOIN [postrider_dead] d WITH (ROWLOCK, INDEX ([postrider_dead_key]), FORCESEEK)
    ON d.lane = u.lane AND d.key_hash = u.key_hash AND d.pos >= u.start AND d.pos < u.below AND d.ordering_key = u.ordering_key
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
