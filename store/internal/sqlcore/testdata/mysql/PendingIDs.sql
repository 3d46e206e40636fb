SELECT u.id FROM (SELECT UNHEX(j.id) AS id, j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY, id CHAR(32) CHARACTER SET ascii PATH '$[0]')) j) u
 WHERE EXISTS (SELECT 1 FROM `postrider_lanes` l STRAIGHT_JOIN `postrider_outbox` p FORCE INDEX (PRIMARY) ON p.lane = l.lane AND p.id = u.id WHERE JSON_CONTAINS(?2, CAST(l.lane AS CHAR)))
    OR EXISTS (SELECT 1 FROM `postrider_lanes` l STRAIGHT_JOIN `postrider_deferred` p ON p.lane = l.lane AND p.id = u.id WHERE JSON_CONTAINS(?2, CAST(l.lane AS CHAR)))
