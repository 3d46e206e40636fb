INSERT INTO [postrider_audit] (at, done_by, what, how_many, detail) VALUES (DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()), @p1, @p2, @p3, @p4)
