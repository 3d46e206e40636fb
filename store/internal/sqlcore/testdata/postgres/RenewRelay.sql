UPDATE "postrider_relays" SET expires_at = GREATEST(expires_at, $2::bigint), routes = $3::text, ended = $4::smallint WHERE owner = $1::uuid
