DELETE FROM "postrider_inbox" WHERE consumer = #1 AND message_id = #2 AND expires_at <= ?2
