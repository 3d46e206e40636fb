SELECT owner FROM "postrider_lanes" WHERE lane = ?1 FOR UPDATE
