DELETE FROM "postrider_parked_keys" AS k WHERE k.unparking <> 0
   AND (k.lane, k.key_hash, k.ordering_key) IN (SELECT u.lane, u.key_hash, u.ordering_key FROM (SELECT CAST(substr(?2, value + 0, 20) AS INTEGER) AS lane, CAST(substr(?2, value + 20, 20) AS INTEGER) AS key_hash, substr(?2, value + nullif(CAST(substr(?2, value + 40, 10) AS INTEGER), 0), CAST(substr(?2, value + 50, 10) AS INTEGER)) AS ordering_key, key + 1 AS ord FROM json_each(?1)) u)
   AND NOT EXISTS (SELECT 1 FROM "postrider_deferred" o WHERE o.lane = k.lane AND o.key_hash = k.key_hash AND o.ordering_key = k.ordering_key AND o.due_at IS NULL)
RETURNING lane, ordering_key
