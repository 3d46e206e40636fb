SELECT l.lane FROM "postrider_lanes" l WHERE (l.lane, l.epoch) IN (SELECT u.lane, u.epoch FROM ([< UNION ALL |SELECT j.ord, j.lane, j.epoch FROM JSON_TABLE(CAST(?1 AS VARCHAR2(4000 BYTE)), '$[*]' COLUMNS (ord NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', epoch NUMBER PATH '$[2]')) j>]) u) AND l.owner = ?2
 ORDER BY l.lane FOR UPDATE
