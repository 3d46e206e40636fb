DELETE FROM "postrider_relays" WHERE 1 = 0
