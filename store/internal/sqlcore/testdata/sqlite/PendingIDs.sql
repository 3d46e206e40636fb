SELECT u.id FROM (SELECT substr(?2, value + 0, 16) AS id, key + 1 AS ord FROM json_each(?1)) u
 WHERE EXISTS (SELECT 1 FROM "postrider_outbox" p WHERE p.id = u.id AND +p.lane IN (SELECT value FROM json_each(?3)))
    OR EXISTS (SELECT 1 FROM "postrider_deferred" p WHERE p.id = u.id AND +p.lane IN (SELECT value FROM json_each(?3)))
