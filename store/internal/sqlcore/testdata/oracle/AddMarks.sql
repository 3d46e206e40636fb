INSERT INTO "postrider_lane_marks" (lane) VALUES (#1)
