SELECT lane, attempts, CASE WHEN key_hash IS NULL THEN 0 ELSE 1 END FROM "postrider_outbox"
 WHERE id = ?2 AND claim_token = ?3 AND claim_until > ?1
