UPDATE "postrider_deferred" o SET attempts = u.attempts, last_error = u.reason, retry_at = u.retry_at, first_failed_at = COALESCE(o.first_failed_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
   due_at = CASE WHEN o.due_at IS NULL THEN NULL ELSE COALESCE(GREATEST(o.deliver_at, u.retry_at), 0) END
  FROM unnest($1::integer[], $2::uuid[], $3::integer[], $4::text[], $5::bigint[]) AS u(lane, id, attempts, reason, retry_at)
 WHERE o.lane = u.lane AND o.id = u.id
