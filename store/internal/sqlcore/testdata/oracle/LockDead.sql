SELECT /*+ USE_NL(d) INDEX(d (id)) */ d.id, d.lane, d.transport, d.ordering_key, d.later_out FROM "postrider_dead" d
 WHERE d.id IN (SELECT /*+ UNNEST CARDINALITY(u 10) */ u.id FROM ([< UNION ALL |SELECT j.ord, HEXTORAW(j.id) AS id FROM JSON_TABLE(CAST(?1 AS VARCHAR2(4000 BYTE)), '$[*]' COLUMNS (ord NUMBER PATH '$[0]', id VARCHAR2(32) PATH '$[1]')) j>]) u) ORDER BY d.id FOR UPDATE
