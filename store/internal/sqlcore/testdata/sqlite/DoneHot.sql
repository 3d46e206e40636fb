DELETE FROM "postrider_outbox"
 WHERE id = ?2 AND claim_token = ?3 AND claim_until > ?1
