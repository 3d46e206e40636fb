UPDATE "postrider_lane_marks" AS k SET tried_to = u.pos FROM (SELECT value ->> 0 AS lane, value ->> 1 AS pos, key + 1 AS ord FROM json_each(?1)) u WHERE k.lane = u.lane AND k.tried_to < u.pos
