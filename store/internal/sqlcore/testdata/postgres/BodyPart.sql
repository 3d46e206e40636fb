SELECT substr(o.body, $4::integer, $5::integer) FROM "postrider_outbox" o WHERE o.lane = $1::integer AND o.pos = $2::bigint AND o.id = $3::uuid
