SELECT COUNT(*) FROM "postrider_inbox" WHERE consumer = ?2 AND message_id = ?3 AND token IS NULL AND (expires_at IS NULL OR expires_at > ?1)
