SELECT u.ord, o.lane, o.pos, o.id, o.key_hash, o.size
  FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS u(lane, after, upto, ord)
 CROSS JOIN LATERAL (SELECT o.lane, o.pos, o.id, o.key_hash, coalesce(octet_length(o.body), 0) AS size FROM "postrider_outbox" o WHERE o.lane = u.lane AND o.pos > u.after AND o.pos <= u.upto
                      ORDER BY o.lane, o.pos LIMIT 32) o
