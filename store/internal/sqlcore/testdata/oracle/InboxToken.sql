SELECT token FROM "postrider_inbox" WHERE consumer = ?1 AND message_id = ?2
