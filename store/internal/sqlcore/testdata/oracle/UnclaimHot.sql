UPDATE "postrider_outbox" SET claim_token = NULL, claim_until = NULL WHERE lane = ?1 AND id = ?2
