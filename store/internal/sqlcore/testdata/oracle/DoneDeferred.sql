DELETE /*+ USE_NL(o) INDEX(o (lane id)) */ FROM "postrider_deferred" o
 WHERE o.lane IN (SELECT l.lane FROM "postrider_lanes" l) AND o.id = ?2 AND o.claim_token = ?3 AND o.claim_until > ?1
