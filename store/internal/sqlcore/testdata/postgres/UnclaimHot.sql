UPDATE "postrider_outbox" SET claim_token = NULL, claim_until = NULL WHERE lane = $1::integer AND id = $2::uuid
