DELETE FROM "postrider_deferred"
 WHERE id = ?2 AND claim_token = ?3 AND claim_until > ?1
