SELECT u.ord, o.lane, o.pos, o.id, o.key_hash, o.bytes
  FROM ([< UNION ALL |SELECT j.ord, j.lane, j.after_pos, j.upto_pos FROM JSON_TABLE(CAST(?1 AS VARCHAR2(4000 BYTE)), '$[*]' COLUMNS (ord NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', after_pos NUMBER PATH '$[2]', upto_pos NUMBER PATH '$[3]')) j>]) u CROSS APPLY (SELECT /*+ INDEX(o (lane pos)) */ o.lane, o.pos, o.id, o.key_hash, COALESCE(DBMS_LOB.GETLENGTH(o.body), 0) AS bytes FROM "postrider_outbox" o
    WHERE o.lane = u.lane AND o.pos > u.after_pos AND o.pos <= u.upto_pos ORDER BY o.pos FETCH FIRST 32 ROWS ONLY) o
