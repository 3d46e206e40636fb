SELECT d.lane FROM (SELECT unhex(value ->> 0) AS id, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_dead" d ON d.id = u.id
