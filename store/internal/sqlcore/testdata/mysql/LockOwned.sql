SELECT l.lane FROM (SELECT DISTINCT lane FROM `postrider_lanes` WHERE owner = ?1) u STRAIGHT_JOIN `postrider_lanes` l FORCE INDEX (PRIMARY) ON l.lane = u.lane
 WHERE l.owner = ?1 ORDER BY l.lane FOR UPDATE
