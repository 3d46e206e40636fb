DELETE FROM "postrider_inbox" WHERE (consumer, message_id) IN (
  SELECT consumer, message_id FROM "postrider_inbox" WHERE expires_at <= $1::bigint ORDER BY expires_at LIMIT 32 FOR UPDATE SKIP LOCKED)
