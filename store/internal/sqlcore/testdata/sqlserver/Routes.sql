SELECT name, first_lane, ordered_lanes, unordered_lanes FROM [postrider_routes] ORDER BY first_lane
