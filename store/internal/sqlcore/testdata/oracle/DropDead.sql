DELETE FROM "postrider_dead" WHERE id = #1
