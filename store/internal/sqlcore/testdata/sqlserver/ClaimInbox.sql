SET XACT_ABORT OFF;
SET NOCOUNT ON;
DECLARE @locked INT, @message NVARCHAR(255) = CONCAT(N'postrider ', CONVERT(NVARCHAR(64), HASHBYTES('SHA2_256', CONVERT(BINARY(4), OBJECT_ID('[postrider_inbox]')) + @p1 + 0x00 + @p2), 2));
EXEC @locked = sp_getapplock @Resource = @message, @LockMode = 'Exclusive', @LockOwner = 'Transaction';
IF @locked < 0
BEGIN;
THROW 51205, N'postrider: the lock was not granted: deadlock or timeout', 1;
END;
SET NOCOUNT OFF;
UPDATE [postrider_inbox] SET processed_at = @p3, expires_at = @p4, token = @p5 WHERE consumer = @p1 AND message_id = @p2 AND expires_at <= @p3;
IF @@ROWCOUNT = 0
INSERT INTO [postrider_inbox] (consumer, message_id, processed_at, expires_at, token)
SELECT @p1, @p2, @p3, @p4, @p5 WHERE NOT EXISTS (SELECT 1 FROM [postrider_inbox] WHERE consumer = @p1 AND message_id = @p2)
