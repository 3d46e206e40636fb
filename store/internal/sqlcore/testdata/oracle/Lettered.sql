SELECT u.lane, u.key_hash FROM ([< UNION ALL |SELECT j.ord, j.lane, j.key_hash FROM JSON_TABLE(CAST(?1 AS VARCHAR2(4000 BYTE)), '$[*]' COLUMNS (ord NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', key_hash NUMBER PATH '$[2]')) j>]) u
 WHERE EXISTS (SELECT /*+ NO_UNNEST INDEX(d (lane key_hash pos)) */ 1 FROM "postrider_dead" d WHERE d.lane = u.lane AND d.key_hash = u.key_hash)
