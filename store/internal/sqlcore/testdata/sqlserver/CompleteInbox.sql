UPDATE [postrider_inbox] SET processed_at = @p3, expires_at = CONVERT(BIGINT, @p4), token = NULL WHERE consumer = @p1 AND message_id = @p2 AND token = @p5
