UPDATE "postrider_relays" SET expires_at = GREATEST(expires_at, ?2), ended = ?4, routes = ?3 WHERE owner = ?1
