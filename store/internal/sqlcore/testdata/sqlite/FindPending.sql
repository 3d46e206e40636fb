SELECT lane FROM "postrider_outbox" WHERE id = ?1
UNION ALL SELECT lane FROM "postrider_deferred" WHERE id = ?1
