SELECT COUNT_BIG(*) FROM [postrider_dead]
