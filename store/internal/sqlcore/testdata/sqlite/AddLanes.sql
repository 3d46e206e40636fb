INSERT INTO "postrider_lanes" (lane, is_ordered, route) SELECT u.lane, u.is_ordered, ?2 FROM (SELECT value ->> 0 AS lane, value ->> 1 AS is_ordered, key + 1 AS ord FROM json_each(?1)) u
