UPDATE "postrider_inbox" SET processed_at = ?3, expires_at = ?4, token = NULL
 WHERE consumer = ?1 AND message_id = ?2 AND token = ?5
