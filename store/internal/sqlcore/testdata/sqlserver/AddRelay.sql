INSERT INTO [postrider_relays] (owner, expires_at, routes, ended) VALUES (CONVERT(BINARY(16), @p1), @p2, @p3, @p4)
