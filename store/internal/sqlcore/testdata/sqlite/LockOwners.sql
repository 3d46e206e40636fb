SELECT r.owner, r.expires_at, r.ended FROM (SELECT substr(?2, value + 0, 16) AS owner, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_relays" r ON r.owner = u.owner ORDER BY r.owner
