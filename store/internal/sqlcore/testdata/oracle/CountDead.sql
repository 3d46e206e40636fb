SELECT COUNT(*) FROM "postrider_dead"
