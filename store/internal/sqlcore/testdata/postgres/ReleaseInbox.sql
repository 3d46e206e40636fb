DELETE FROM "postrider_inbox" WHERE consumer = $1::text AND message_id = $2::text AND token = $3::bytea
