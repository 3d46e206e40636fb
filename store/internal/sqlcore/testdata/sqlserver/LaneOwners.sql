SELECT lane, owner FROM [postrider_lanes] WHERE owner IS NOT NULL
