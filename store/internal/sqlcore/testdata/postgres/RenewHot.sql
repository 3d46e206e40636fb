UPDATE "postrider_outbox" o SET claim_until = GREATEST(o.claim_until, $4::bigint)
 WHERE o.lane = ANY (ARRAY(SELECT lane FROM "postrider_lanes")) AND o.id = $2::uuid AND o.claim_token = $3::bytea AND o.claim_until > $1::bigint
