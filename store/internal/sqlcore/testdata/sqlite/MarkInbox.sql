INSERT INTO "postrider_inbox" (consumer, message_id, processed_at, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (consumer, message_id) DO UPDATE
   SET processed_at = excluded.processed_at, expires_at = excluded.expires_at, token = NULL
