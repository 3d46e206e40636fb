SELECT token FROM [postrider_inbox] WHERE consumer = @p1 AND message_id = @p2
