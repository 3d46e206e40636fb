SELECT r.owner, r.expires_at, r.ended FROM (SELECT j.ord, CONVERT(BINARY(16), j.owner, 2) AS owner FROM OPENJSON(@p1) WITH (ord INT '$[0]', owner CHAR(32) '$[1]') j) u JOIN [postrider_relays] r WITH (XLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON r.owner = u.owner
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
