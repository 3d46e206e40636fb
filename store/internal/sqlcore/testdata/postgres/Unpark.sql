UPDATE "postrider_parked_keys" SET unparking = 1
 WHERE lane = $1::integer AND key_hash = $2::bigint AND ordering_key = $3::bytea AND unparking = 0
