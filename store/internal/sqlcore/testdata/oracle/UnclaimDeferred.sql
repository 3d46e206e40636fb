UPDATE "postrider_deferred" SET claim_token = NULL, claim_until = NULL WHERE lane = ?1 AND id = ?2
