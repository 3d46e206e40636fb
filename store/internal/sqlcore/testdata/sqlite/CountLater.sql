UPDATE "postrider_dead" AS d SET later_out = d.later_out + u.more
  FROM (SELECT value ->> 0 AS lane, value ->> 1 AS key_hash, unhex(value ->> 2) AS ordering_key, value ->> 3 AS start, value ->> 4 AS below, value ->> 5 AS more, key + 1 AS ord FROM json_each(?1)) u
 WHERE d.lane = u.lane AND d.key_hash IS NOT NULL AND d.key_hash = u.key_hash AND d.pos >= u.start AND d.pos < u.below AND d.ordering_key = u.ordering_key
