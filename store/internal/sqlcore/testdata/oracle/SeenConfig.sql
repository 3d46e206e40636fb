UPDATE "postrider_lane_marks" SET config_seen = #2 WHERE lane = #1 AND config_seen < #2
