UPDATE "postrider_lanes" SET config = config + 1 WHERE lane = #1
