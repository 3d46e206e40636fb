SELECT COUNT(*) FROM [postrider_inbox] WHERE consumer = @p2 AND message_id = @p3 AND token IS NULL AND (expires_at IS NULL OR expires_at > @p1)
