UPDATE "postrider_outbox" SET claim_until = max(claim_until, ?4)
 WHERE id = ?2 AND claim_token = ?3 AND claim_until > ?1
