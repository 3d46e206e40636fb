SELECT y.lane, y.id FROM ([< UNION ALL |SELECT j.ord, j.lane, j.key_hash, HEXTORAW(j.ordering_key) AS ordering_key FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', key_hash NUMBER PATH '$[2]', ordering_key VARCHAR2(2048) PATH '$[3]')) j>]) u CROSS APPLY (SELECT /*+ INDEX(o (lane, key_hash, ordering_key, pos)) */ o.lane, o.id, o.pos FROM "postrider_outbox" o
   WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key ORDER BY o.pos FETCH FIRST 32 ROWS ONLY) y
 ORDER BY u.ord, y.pos FETCH FIRST ?2 ROWS ONLY
