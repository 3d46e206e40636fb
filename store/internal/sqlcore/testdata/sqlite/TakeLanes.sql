UPDATE "postrider_lanes" SET unclean = CASE WHEN owner IS NULL THEN 0 ELSE 1 END, owner = ?3, epoch = epoch + 1
 WHERE lane IN (SELECT u.lane FROM (SELECT CAST(substr(?2, value + 0, 20) AS INTEGER) AS lane, key + 1 AS ord FROM json_each(?1)) u)
