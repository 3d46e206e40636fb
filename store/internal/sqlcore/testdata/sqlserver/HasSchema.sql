SELECT COUNT(*) FROM sys.schemas WHERE name = @p1
