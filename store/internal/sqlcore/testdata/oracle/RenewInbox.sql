UPDATE "postrider_inbox" SET expires_at = GREATEST(expires_at, ?4) WHERE consumer = ?1 AND message_id = ?2 AND token = ?5 AND expires_at > ?3
