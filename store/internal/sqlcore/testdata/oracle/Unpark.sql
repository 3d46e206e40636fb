UPDATE "postrider_parked_keys" SET unparking = 1 WHERE lane = ?1 AND key_hash = ?2 AND ordering_key = ?3 AND unparking = 0
