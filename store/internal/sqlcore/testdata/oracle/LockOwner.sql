SELECT expires_at, ended FROM "postrider_relays" WHERE owner = ?1 FOR UPDATE
