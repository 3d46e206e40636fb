SELECT r.owner, r.expires_at, r.ended FROM "postrider_relays" r JOIN unnest($1::uuid[]) AS u(owner) ON r.owner = u.owner
 ORDER BY r.owner FOR UPDATE OF r SKIP LOCKED
