UPDATE "postrider_lanes" SET config = config + 1 WHERE lane IN (SELECT u.lane FROM (SELECT value ->> 0 AS lane, key + 1 AS ord FROM json_each(?1)) u)
