DELETE FROM "postrider_relays" WHERE owner IN (
  SELECT r.owner FROM "postrider_relays" r WHERE r.expires_at < $1::bigint AND NOT EXISTS (SELECT 1 FROM "postrider_lanes" l WHERE l.owner = r.owner)
   ORDER BY r.owner FOR UPDATE SKIP LOCKED)
