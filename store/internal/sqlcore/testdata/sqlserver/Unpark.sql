UPDATE [postrider_parked_keys] SET unparking = 1 WHERE lane = CONVERT(INT, @p1) AND key_hash = @p2 AND ordering_key = @p3 AND unparking = 0
