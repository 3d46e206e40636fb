SELECT name, value FROM [postrider_meta]
