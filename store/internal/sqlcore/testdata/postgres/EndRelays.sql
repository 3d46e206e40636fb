UPDATE "postrider_relays" r SET ended = 1 FROM unnest($1::uuid[]) AS u(owner) WHERE r.owner = u.owner
