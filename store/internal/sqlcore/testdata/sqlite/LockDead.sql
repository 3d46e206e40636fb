SELECT d.id, d.lane, d.transport, d.ordering_key, d.later_out FROM (SELECT substr(?2, value + 0, 16) AS id, key + 1 AS ord FROM json_each(?1)) u CROSS JOIN "postrider_dead" d ON d.id = u.id
