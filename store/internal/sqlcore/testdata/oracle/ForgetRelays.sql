DELETE FROM "postrider_relays" g WHERE g.expires_at < ?1 AND NOT EXISTS (SELECT 1 FROM "postrider_lanes" l WHERE l.owner = g.owner)
