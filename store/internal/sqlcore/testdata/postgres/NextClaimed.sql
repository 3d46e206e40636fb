SELECT min(o.claim_until) FROM unnest($1::integer[]) AS u(lane)
 CROSS JOIN LATERAL (SELECT o.claim_until FROM "postrider_deferred" o WHERE o.lane = u.lane AND o.due_at <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
                      ORDER BY o.lane, o.due_at, o.pos LIMIT 1024) o
 WHERE o.claim_until > (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
