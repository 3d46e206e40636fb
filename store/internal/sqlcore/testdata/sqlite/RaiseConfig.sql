UPDATE "postrider_lanes" SET config = config + 1 WHERE lane IN (SELECT u.lane FROM (SELECT CAST(substr(?2, value + 0, 20) AS INTEGER) AS lane, key + 1 AS ord FROM json_each(?1)) u)
