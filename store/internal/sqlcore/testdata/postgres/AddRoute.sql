INSERT INTO "postrider_routes" (name, first_lane, ordered_lanes, unordered_lanes) VALUES ($1::text, $2::integer, $3::integer, $4::integer)
