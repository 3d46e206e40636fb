SELECT SUBSTRING(o.body, @p4, @p5) FROM [postrider_outbox] o WHERE o.lane = CONVERT(INT, @p1) AND o.pos = @p2 AND o.id = CONVERT(BINARY(16), @p3)
