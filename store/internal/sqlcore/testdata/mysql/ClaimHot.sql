> SELECT o.pos FROM `postrider_outbox` o FORCE INDEX (PRIMARY) WHERE o.lane = ?2 AND o.id = ?3
    AND (o.deliver_at IS NULL OR o.deliver_at <= ?1) AND (o.retry_at IS NULL OR o.retry_at <= ?1)
    AND (o.claim_until IS NULL OR o.claim_until <= ?1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM `postrider_parked_keys` k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) FOR UPDATE
;; UPDATE `postrider_outbox` SET claim_token = ?4, claim_until = ?5 WHERE lane = ?2 AND id = ?3
