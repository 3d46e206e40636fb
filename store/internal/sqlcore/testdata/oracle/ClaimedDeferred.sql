SELECT /*+ USE_NL(o) INDEX(o (lane id)) */ o.lane, o.attempts, CASE WHEN o.key_hash IS NULL THEN 0 ELSE 1 END FROM "postrider_deferred" o
 WHERE o.lane IN (SELECT l.lane FROM "postrider_lanes" l) AND o.id = ?2 AND o.claim_token = ?3 AND o.claim_until > ?1 FOR UPDATE
