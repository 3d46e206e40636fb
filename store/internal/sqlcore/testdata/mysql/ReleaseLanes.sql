UPDATE (SELECT j.lane AS lane, j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY, lane BIGINT PATH '$[0]')) j) u STRAIGHT_JOIN `postrider_lanes` l FORCE INDEX (PRIMARY) ON l.lane = u.lane SET l.owner = NULL, l.unclean = 0
 WHERE l.owner = ?2
