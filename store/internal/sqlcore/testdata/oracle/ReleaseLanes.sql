UPDATE "postrider_lanes" SET owner = NULL, unclean = 0 WHERE lane = #1 AND owner = ?2
