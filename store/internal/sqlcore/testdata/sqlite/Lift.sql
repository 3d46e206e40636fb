DELETE FROM "postrider_parked_keys" AS k WHERE k.unparking <> 0
   AND (k.lane, k.key_hash, k.ordering_key) IN (SELECT u.lane, u.key_hash, u.ordering_key FROM (SELECT value ->> 0 AS lane, value ->> 1 AS key_hash, unhex(value ->> 2) AS ordering_key, key + 1 AS ord FROM json_each(?1)) u)
   AND NOT EXISTS (SELECT 1 FROM "postrider_deferred" o WHERE o.lane = k.lane AND o.key_hash = k.key_hash AND o.ordering_key = k.ordering_key AND o.due_at IS NULL)
RETURNING lane, ordering_key
