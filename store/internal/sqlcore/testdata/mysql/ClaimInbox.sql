INSERT INTO `postrider_inbox` (consumer, message_id, processed_at, expires_at, token) VALUES (?1, ?2, ?3, ?4, ?5)
ON DUPLICATE KEY UPDATE repeats = CASE WHEN expires_at <= ?3 THEN 0 ELSE repeats END,
   processed_at = CASE WHEN expires_at <= ?3 THEN ?3 ELSE processed_at END,
   token = CASE WHEN expires_at <= ?3 THEN ?5 ELSE token END,
   expires_at = CASE WHEN expires_at <= ?3 THEN ?4 ELSE expires_at END
