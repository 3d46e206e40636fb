UPDATE [postrider_relays] SET expires_at = CASE WHEN expires_at > @p2 THEN expires_at ELSE @p2 END, routes = @p3, ended = @p4
 WHERE owner = CONVERT(BINARY(16), @p1)
