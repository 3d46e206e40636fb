INSERT INTO `postrider_relays` (owner, expires_at, routes, ended) VALUES (?1, ?2, ?3, ?4)
