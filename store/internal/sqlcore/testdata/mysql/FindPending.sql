SELECT o.lane FROM `postrider_lanes` l STRAIGHT_JOIN `postrider_outbox` o FORCE INDEX (PRIMARY) ON o.lane = l.lane AND o.id = ?1
UNION ALL SELECT o.lane FROM `postrider_lanes` l STRAIGHT_JOIN `postrider_deferred` o ON o.lane = l.lane AND o.id = ?1
