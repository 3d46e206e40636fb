if SELECT o.pos FROM (SELECT DISTINCT lane FROM `postrider_lanes`) l STRAIGHT_JOIN `postrider_outbox` o FORCE INDEX (PRIMARY) ON o.lane = l.lane AND o.id = ?2
 WHERE o.claim_token = ?3 AND o.claim_until > ?1
;; DELETE `postrider_outbox` FROM (SELECT DISTINCT lane FROM `postrider_lanes`) l STRAIGHT_JOIN `postrider_outbox` FORCE INDEX (PRIMARY) ON `postrider_outbox`.lane = l.lane AND `postrider_outbox`.id = ?2
 WHERE `postrider_outbox`.claim_token = ?3 AND `postrider_outbox`.claim_until > ?1
