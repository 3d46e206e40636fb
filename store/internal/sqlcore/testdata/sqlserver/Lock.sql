DECLARE @locked INT, @migration NVARCHAR(255) = CONCAT(N'postrider migration ', @p1, N' ', LOWER(SCHEMA_NAME()));
EXEC @locked = sp_getapplock @Resource = @migration, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 600000;
IF @locked < 0
BEGIN;
THROW 51205, N'postrider: the lock was not granted: deadlock or timeout', 1;
END;
SELECT 1
