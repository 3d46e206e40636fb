UPDATE "postrider_lanes" SET owner = NULL, unclean = 0 WHERE lane IN (SELECT u.lane FROM (SELECT value ->> 0 AS lane, key + 1 AS ord FROM json_each(?1)) u) AND owner = ?2
