INSERT INTO "postrider_parked_keys" AS k (lane, key_hash, ordering_key, why, parked_by, parked_at)
SELECT u.lane, u.key_hash, u.ordering_key, u.why, ?2, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER) FROM (SELECT value ->> 0 AS lane, value ->> 1 AS key_hash, unhex(value ->> 2) AS ordering_key, value ->> 3 AS why, key + 1 AS ord FROM json_each(?1)) u WHERE true
ON CONFLICT (lane, key_hash, ordering_key) DO UPDATE
   SET unparking = 0, why = excluded.why, parked_by = excluded.parked_by, parked_at = excluded.parked_at WHERE k.unparking <> 0
