SELECT r.owner FROM "postrider_relays" r JOIN unnest($1::uuid[]) AS u(owner) ON r.owner = u.owner
