INSERT INTO "postrider_lanes" (lane, is_ordered, route) VALUES (#1, #2, ?2)
