SELECT r.owner, r.expires_at, r.ended FROM (SELECT UNHEX(j.owner) AS owner, j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY, owner CHAR(32) CHARACTER SET ascii PATH '$[0]')) j) u STRAIGHT_JOIN `postrider_relays` r FORCE INDEX (PRIMARY) ON r.owner = u.owner
 ORDER BY r.owner FOR UPDATE SKIP LOCKED
