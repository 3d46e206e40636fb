UPDATE "postrider_relays" SET expires_at = max(expires_at, ?2), routes = ?3, ended = ?4 WHERE owner = ?1
