SELECT u.id FROM (SELECT unhex(value ->> 0) AS id, key + 1 AS ord FROM json_each(?1)) u
 WHERE EXISTS (SELECT 1 FROM "postrider_outbox" p WHERE p.id = u.id AND +p.lane IN (SELECT value FROM json_each(?2)))
    OR EXISTS (SELECT 1 FROM "postrider_deferred" p WHERE p.id = u.id AND +p.lane IN (SELECT value FROM json_each(?2)))
