UPDATE "postrider_relays" SET ended = 1 WHERE owner IN (SELECT u.owner FROM (SELECT substr(?2, value + 0, 16) AS owner, key + 1 AS ord FROM json_each(?1)) u)
