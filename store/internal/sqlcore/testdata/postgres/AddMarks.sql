INSERT INTO "postrider_lane_marks" (lane) SELECT u.lane FROM unnest($1::integer[]) AS u(lane)
