SELECT r.owner FROM (SELECT unhex(value ->> 0) AS owner, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_relays" r ON r.owner = u.owner
