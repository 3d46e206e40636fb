UPDATE k SET unparking = 0, why = u.why, parked_by = @p2, parked_at = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME())
  FROM (SELECT j.ord, j.lane AS lane, j.key_hash AS key_hash, CONVERT(VARBINARY(1024), j.ordering_key, 2) AS ordering_key, j.why AS why FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', key_hash BIGINT '$[2]', ordering_key VARCHAR(2048) '$[3]', why NVARCHAR(MAX) '$[4]') j) u JOIN [postrider_parked_keys] k WITH (ROWLOCK, FORCESEEK) ON k.lane = u.lane AND k.key_hash = u.key_hash AND k.ordering_key = u.ordering_key AND k.unparking <> 0
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1);
INSERT INTO [postrider_parked_keys] (lane, key_hash, ordering_key, why, parked_by, parked_at)
SELECT u.lane, u.key_hash, u.ordering_key, u.why, @p2, DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()) FROM (SELECT j.ord, j.lane AS lane, j.key_hash AS key_hash, CONVERT(VARBINARY(1024), j.ordering_key, 2) AS ordering_key, j.why AS why FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', key_hash BIGINT '$[2]', ordering_key VARCHAR(2048) '$[3]', why NVARCHAR(MAX) '$[4]') j) u
 WHERE NOT EXISTS (SELECT 1 FROM [postrider_parked_keys] k WHERE k.lane = u.lane AND k.key_hash = u.key_hash AND k.ordering_key = u.ordering_key)
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
