UPDATE "postrider_outbox" o SET attempts = u.attempts, last_error = u.reason, retry_at = u.retry_at, first_failed_at = COALESCE(o.first_failed_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
  FROM unnest($1::integer[], $2::uuid[], $3::integer[], $4::text[], $5::bigint[]) AS u(lane, id, attempts, reason, retry_at)
 WHERE o.lane = u.lane AND o.id = u.id
