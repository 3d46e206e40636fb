DELETE FROM "postrider_outbox" WHERE pos BETWEEN ?1 AND ?2 AND id = substr(?3, (pos - ?1) * 26 + 1, 16)
   AND lane = CAST(substr(?3, (pos - ?1) * 26 + 17, 10) AS INTEGER)
