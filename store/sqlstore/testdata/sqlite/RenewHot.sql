UPDATE "postrider_outbox" SET claim_until = max(claim_until, ?4)
 WHERE lane IN (SELECT lane FROM "postrider_lanes") AND id = ?2 AND claim_token = ?3 AND claim_until > ?1
