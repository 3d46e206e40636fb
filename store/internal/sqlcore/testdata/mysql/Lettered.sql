SELECT u.lane, u.key_hash FROM (SELECT j.lane AS lane, j.key_hash AS key_hash, j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY, lane BIGINT PATH '$[0]', key_hash BIGINT PATH '$[1]')) j) u
 WHERE (SELECT 1 FROM `postrider_dead` d FORCE INDEX (`postrider_dead_key`) WHERE d.lane = u.lane AND d.key_hash = u.key_hash LIMIT 1) IS NOT NULL
