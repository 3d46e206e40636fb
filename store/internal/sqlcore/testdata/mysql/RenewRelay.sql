UPDATE `postrider_relays` SET expires_at = GREATEST(expires_at, ?2), routes = ?3, ended = ?4 WHERE owner = ?1
