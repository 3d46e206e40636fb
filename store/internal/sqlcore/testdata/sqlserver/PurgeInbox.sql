WITH x AS (SELECT TOP (32) * FROM [postrider_inbox] WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX ([postrider_inbox_expiry]), FORCESEEK)
 WHERE expires_at <= @p1 ORDER BY expires_at)
DELETE FROM x
