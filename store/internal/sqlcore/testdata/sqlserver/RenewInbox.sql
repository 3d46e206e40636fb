UPDATE [postrider_inbox] SET expires_at = CASE WHEN expires_at > @p4 THEN expires_at ELSE @p4 END
 WHERE consumer = @p1 AND message_id = @p2 AND token = @p5 AND expires_at > @p3
