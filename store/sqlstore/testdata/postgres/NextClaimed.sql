SELECT min(o.claim_until) FROM unnest($1::integer[]) AS u(lane)
  JOIN "postrider_deferred" o ON o.lane = u.lane AND o.due_at <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AND o.claim_until > (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
