> SELECT k.lane, k.ordering_key FROM "postrider_parked_keys" k WHERE (k.lane, k.key_hash, k.ordering_key) IN (SELECT u.lane, u.key_hash, u.ordering_key FROM ([< UNION ALL |SELECT j.ord, j.lane, j.key_hash, HEXTORAW(j.ordering_key) AS ordering_key FROM JSON_TABLE(CAST(?1 AS VARCHAR2(4000 BYTE)), '$[*]' COLUMNS (ord NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', key_hash NUMBER PATH '$[2]', ordering_key VARCHAR2(2048) PATH '$[3]')) j>]) u)
   AND k.unparking <> 0
   AND NOT EXISTS (SELECT 1 FROM "postrider_deferred" o WHERE o.lane = k.lane AND o.key_hash = k.key_hash AND o.ordering_key = k.ordering_key AND o.due_at IS NULL) FOR UPDATE
;; DELETE FROM "postrider_parked_keys" k WHERE k.lane = #1 AND k.key_hash = #2 AND k.ordering_key = #3 AND k.unparking <> 0
   AND NOT EXISTS (SELECT 1 FROM "postrider_deferred" o WHERE o.lane = k.lane AND o.key_hash = k.key_hash AND o.ordering_key = k.ordering_key AND o.due_at IS NULL)
