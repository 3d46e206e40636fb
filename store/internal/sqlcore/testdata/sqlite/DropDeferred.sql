DELETE FROM "postrider_deferred" WHERE (lane, id) IN (SELECT u.lane, u.id FROM (SELECT value ->> 0 AS lane, unhex(value ->> 1) AS id, key + 1 AS ord FROM json_each(?1)) u)
