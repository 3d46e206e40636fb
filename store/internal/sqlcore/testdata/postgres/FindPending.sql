SELECT lane FROM "postrider_outbox" WHERE lane = ANY (ARRAY(SELECT lane FROM "postrider_lanes")) AND id = $1::uuid
UNION ALL SELECT lane FROM "postrider_deferred" WHERE lane = ANY (ARRAY(SELECT lane FROM "postrider_lanes")) AND id = $1::uuid
