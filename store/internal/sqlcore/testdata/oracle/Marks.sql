UPDATE "postrider_lane_marks" SET tried_to = #2 WHERE lane = #1 AND tried_to < #2
