SELECT o.lane, o.id, o.ordering_key FROM unnest($1::integer[]) WITH ORDINALITY AS u(lane, ord)
 CROSS JOIN LATERAL (SELECT o.lane, o.id, o.ordering_key, o.due_at, o.pos FROM "postrider_deferred" o
                      WHERE o.lane = u.lane AND o.due_at <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AND (o.claim_until IS NULL OR o.claim_until <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
                      ORDER BY o.lane, o.due_at, o.pos LIMIT 32 FOR UPDATE SKIP LOCKED) o
 ORDER BY u.ord, o.due_at, o.pos LIMIT $2::integer
