DELETE FROM "postrider_relays" WHERE expires_at < ?1 AND owner NOT IN (SELECT l.owner FROM "postrider_lanes" l WHERE l.owner IS NOT NULL)
