SELECT expires_at, ended FROM [postrider_relays] WITH (XLOCK, ROWLOCK, FORCESEEK) WHERE owner = CONVERT(BINARY(16), @p1)
