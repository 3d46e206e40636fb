UPDATE "postrider_lanes" SET unclean = CASE WHEN owner IS NULL THEN 0 ELSE 1 END, owner = ?2, epoch = epoch + 1 WHERE lane = #1
