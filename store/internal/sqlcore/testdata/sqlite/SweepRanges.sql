SELECT u.ord, o.lane, o.pos, o.id, o.key_hash, coalesce(length(o.body), 0)
  FROM (SELECT CAST(substr(?2, value + 0, 20) AS INTEGER) AS lane, CAST(substr(?2, value + 20, 20) AS INTEGER) AS after, CAST(substr(?2, value + 40, 20) AS INTEGER) AS upto, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_outbox" o
 WHERE o.pos IN (SELECT p.pos FROM "postrider_outbox" p INDEXED BY "postrider_outbox_lane" WHERE p.lane = u.lane AND p.pos > u.after AND p.pos <= u.upto
                  ORDER BY p.pos LIMIT 32)
