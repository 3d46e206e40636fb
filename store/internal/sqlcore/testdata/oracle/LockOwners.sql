SELECT r.owner, r.expires_at, r.ended FROM "postrider_relays" r WHERE r.owner IN (SELECT u.owner FROM ([< UNION ALL |SELECT j.ord, HEXTORAW(j.owner) AS owner FROM JSON_TABLE(CAST(?1 AS VARCHAR2(4000 BYTE)), '$[*]' COLUMNS (ord NUMBER PATH '$[0]', owner VARCHAR2(32) PATH '$[1]')) j>]) u)
 ORDER BY r.owner FOR UPDATE SKIP LOCKED
