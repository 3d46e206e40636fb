SELECT u.ord, o.lane, o.pos, o.id, o.key_hash, coalesce(length(o.body), 0)
  FROM (SELECT value ->> 0 AS lane, value ->> 1 AS after, value ->> 2 AS upto, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_outbox" o
 WHERE o.pos IN (SELECT p.pos FROM "postrider_outbox" p INDEXED BY "postrider_outbox_lane" WHERE p.lane = u.lane AND p.pos > u.after AND p.pos <= u.upto
                  ORDER BY p.pos LIMIT 32)
