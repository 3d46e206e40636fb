SELECT token FROM "postrider_inbox" WHERE consumer = $1::text AND message_id = $2::text
