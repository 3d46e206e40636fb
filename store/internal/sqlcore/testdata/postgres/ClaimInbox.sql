INSERT INTO "postrider_inbox" AS i (consumer, message_id, processed_at, expires_at, token) VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::bytea)
ON CONFLICT (consumer, message_id) DO UPDATE
   SET processed_at = EXCLUDED.processed_at, expires_at = EXCLUDED.expires_at, token = EXCLUDED.token
 WHERE i.expires_at <= EXCLUDED.processed_at
