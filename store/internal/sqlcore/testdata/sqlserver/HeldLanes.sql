SELECT lane FROM [postrider_lanes] WHERE owner = CONVERT(BINARY(16), @p1)
