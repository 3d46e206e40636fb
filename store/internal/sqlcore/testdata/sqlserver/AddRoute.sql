INSERT INTO [postrider_routes] (name, first_lane, ordered_lanes, unordered_lanes) VALUES (@p1, @p2, @p3, @p4)
