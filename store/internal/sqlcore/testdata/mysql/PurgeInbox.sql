SELECT consumer, message_id FROM `postrider_inbox` FORCE INDEX (`postrider_inbox_expiry`) WHERE expires_at <= ?1
 ORDER BY expires_at LIMIT 32 FOR UPDATE SKIP LOCKED
