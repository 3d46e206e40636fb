SELECT COUNT(*) FROM "postrider_deferred" WHERE lane BETWEEN ?1 AND ?2
