SELECT lane, key_hash, ordering_key, unparking, parked_by, parked_at, why FROM "postrider_parked_keys"
