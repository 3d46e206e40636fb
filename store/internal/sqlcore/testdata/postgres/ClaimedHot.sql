SELECT o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END FROM "postrider_outbox" o
 WHERE o.lane = ANY (ARRAY(SELECT lane FROM "postrider_lanes")) AND o.id = $2::uuid AND o.claim_token = $3::bytea AND o.claim_until > $1::bigint FOR UPDATE OF o
