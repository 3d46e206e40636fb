INSERT INTO "postrider_inbox" (consumer, message_id, processed_at, expires_at) VALUES ($1::text, $2::text, $3::bigint, $4::bigint)
ON CONFLICT (consumer, message_id) DO UPDATE
   SET processed_at = EXCLUDED.processed_at, expires_at = EXCLUDED.expires_at, token = NULL
