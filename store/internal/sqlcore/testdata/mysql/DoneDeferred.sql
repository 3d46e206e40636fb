if SELECT o.pos FROM (SELECT DISTINCT lane FROM `postrider_lanes`) l STRAIGHT_JOIN `postrider_deferred` o FORCE INDEX (PRIMARY) ON o.lane = l.lane AND o.id = ?2
 WHERE o.claim_token = ?3 AND o.claim_until > ?1
;; DELETE `postrider_deferred` FROM (SELECT DISTINCT lane FROM `postrider_lanes`) l STRAIGHT_JOIN `postrider_deferred` FORCE INDEX (PRIMARY) ON `postrider_deferred`.lane = l.lane AND `postrider_deferred`.id = ?2
 WHERE `postrider_deferred`.claim_token = ?3 AND `postrider_deferred`.claim_until > ?1
