DELETE FROM "postrider_parked_keys" k USING unnest($1::integer[], $2::bigint[], $3::bytea[]) AS u(lane, key_hash, ordering_key)
 WHERE k.lane = u.lane AND k.key_hash = u.key_hash AND k.ordering_key = u.ordering_key AND k.unparking <> 0
   AND (SELECT 1 FROM "postrider_deferred" o WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key AND o.due_at IS NULL LIMIT 1) IS NULL
RETURNING k.lane, k.ordering_key
