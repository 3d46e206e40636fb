SELECT COUNT(*) FROM "postrider_dead" WHERE transport = ?1
