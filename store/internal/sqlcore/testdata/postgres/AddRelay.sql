INSERT INTO "postrider_relays" (owner, expires_at, routes, ended) VALUES ($1::uuid, $2::bigint, $3::text, $4::smallint)
