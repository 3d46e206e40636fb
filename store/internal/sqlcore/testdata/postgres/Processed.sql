SELECT count(*) FROM "postrider_inbox" WHERE consumer = $2::text AND message_id = $3::text AND token IS NULL AND (expires_at IS NULL OR expires_at > $1::bigint)
