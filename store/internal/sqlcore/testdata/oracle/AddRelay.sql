INSERT INTO "postrider_relays" (owner, expires_at, ended, routes) VALUES (?1, ?2, ?4, ?3)
