UPDATE "postrider_deferred" o SET claim_token = $4::bytea, claim_until = $5::bigint
 WHERE o.lane = $2::integer AND o.id = $3::uuid
    AND o.due_at + 0 <= $1::bigint AND (o.claim_until IS NULL OR o.claim_until <= $1::bigint) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key))
