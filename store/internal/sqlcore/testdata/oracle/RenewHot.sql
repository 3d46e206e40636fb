UPDATE /*+ USE_NL(o) INDEX(o (lane id)) */ "postrider_outbox" o SET o.claim_until = GREATEST(o.claim_until, ?4)
 WHERE o.lane IN (SELECT l.lane FROM "postrider_lanes" l) AND o.id = ?2 AND o.claim_token = ?3 AND o.claim_until > ?1
