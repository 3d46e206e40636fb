UPDATE "postrider_inbox" SET processed_at = $3::bigint, expires_at = $4::bigint, token = NULL
 WHERE consumer = $1::text AND message_id = $2::text AND token = $5::bytea
