DELETE FROM `postrider_inbox` WHERE expires_at <= ?1 ORDER BY expires_at LIMIT 32
