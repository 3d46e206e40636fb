DELETE FROM "postrider_dead" WHERE id IN (SELECT u.id FROM (SELECT substr(?2, value + 0, 16) AS id, key + 1 AS ord FROM json_each(?1)) u)
