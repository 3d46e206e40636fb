SELECT l.lane FROM (SELECT j.lane AS lane, j.epoch AS epoch, j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY, lane BIGINT PATH '$[0]', epoch BIGINT PATH '$[1]')) j) u STRAIGHT_JOIN `postrider_lanes` l FORCE INDEX (PRIMARY) ON l.lane = u.lane AND l.epoch = u.epoch
 WHERE l.owner = ?2 ORDER BY l.lane FOR UPDATE
