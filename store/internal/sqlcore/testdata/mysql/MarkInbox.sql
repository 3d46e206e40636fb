INSERT INTO `postrider_inbox` (consumer, message_id, processed_at, expires_at) VALUES (?1, ?2, ?3, ?4)
ON DUPLICATE KEY UPDATE processed_at = ?3, expires_at = ?4, token = NULL
