INSERT INTO "postrider_lane_marks" (lane) SELECT u.lane FROM (SELECT value ->> 0 AS lane, key + 1 AS ord FROM json_each(?1)) u
