if SELECT o.pos FROM (SELECT DISTINCT lane FROM `postrider_lanes`) l STRAIGHT_JOIN `postrider_outbox` o FORCE INDEX (PRIMARY) ON o.lane = l.lane AND o.id = ?2
 WHERE o.claim_token = ?3 AND o.claim_until > ?1
;; > SELECT o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END FROM (SELECT DISTINCT lane FROM `postrider_lanes`) l STRAIGHT_JOIN `postrider_outbox` o FORCE INDEX (PRIMARY) ON o.lane = l.lane AND o.id = ?2
 WHERE o.claim_token = ?3 AND o.claim_until > ?1 FOR UPDATE
