SELECT COUNT(*) FROM "postrider_parked_keys" WHERE lane BETWEEN ?1 AND ?2
