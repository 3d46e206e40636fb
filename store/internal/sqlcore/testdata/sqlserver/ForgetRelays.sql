DELETE g FROM [postrider_relays] g WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
 WHERE g.expires_at < @p1 AND NOT EXISTS (SELECT 1 FROM [postrider_lanes] l WHERE l.owner = g.owner)
