DELETE FROM "postrider_outbox"
 WHERE lane IN (SELECT lane FROM "postrider_lanes") AND id = ?2 AND claim_token = ?3 AND claim_until > ?1
