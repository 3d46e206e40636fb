UPDATE "postrider_inbox" SET expires_at = GREATEST(expires_at, $4::bigint)
 WHERE consumer = $1::text AND message_id = $2::text AND token = $5::bytea AND expires_at > $3::bigint
