INSERT INTO "postrider_routes" (name, first_lane, ordered_lanes, unordered_lanes) VALUES (?1, ?2, ?3, ?4)
