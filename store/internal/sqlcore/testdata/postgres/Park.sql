INSERT INTO "postrider_parked_keys" AS k (lane, key_hash, ordering_key, why, parked_by, parked_at)
SELECT u.lane, u.key_hash, u.ordering_key, u.why, $5::text, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
  FROM unnest($1::integer[], $2::bigint[], $3::bytea[], $4::text[]) AS u(lane, key_hash, ordering_key, why)
ON CONFLICT (lane, key_hash, ordering_key) DO UPDATE
   SET unparking = 0, why = EXCLUDED.why, parked_by = EXCLUDED.parked_by, parked_at = EXCLUDED.parked_at WHERE k.unparking <> 0
