SELECT o.lane, o.id, o.attempts, o.key_hash, o.ordering_key
  FROM (SELECT DISTINCT u.lane, u.id FROM (SELECT j.lane AS lane, j.pos AS pos, UNHEX(j.id) AS id, j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY, lane BIGINT PATH '$[0]', pos BIGINT PATH '$[1]', id CHAR(32) CHARACTER SET ascii PATH '$[2]')) j) u STRAIGHT_JOIN `postrider_deferred` p FORCE INDEX (PRIMARY) ON p.lane = u.lane AND p.id = u.id AND p.pos = u.pos) v
  STRAIGHT_JOIN `postrider_deferred` o FORCE INDEX (PRIMARY) ON o.lane = v.lane AND o.id = v.id FOR UPDATE
