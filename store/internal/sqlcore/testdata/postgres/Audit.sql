INSERT INTO "postrider_audit" (at, done_by, what, how_many, detail) VALUES ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $1::text, $2::text, $3::bigint, $4::text)
