SELECT min(o.due_at) FROM unnest($1::integer[]) AS u(lane)
 CROSS JOIN LATERAL (SELECT o.due_at FROM "postrider_deferred" o WHERE o.lane = u.lane AND o.due_at IS NOT NULL
                        AND (o.claim_until IS NULL OR o.claim_until <= GREATEST((SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), o.due_at))
                      ORDER BY o.lane, o.due_at, o.pos LIMIT 1) o
