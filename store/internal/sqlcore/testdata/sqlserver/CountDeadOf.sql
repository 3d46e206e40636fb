SELECT COUNT_BIG(*) FROM [postrider_dead] WHERE transport = @p1
