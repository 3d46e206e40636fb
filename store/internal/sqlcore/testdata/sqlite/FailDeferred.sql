UPDATE "postrider_deferred" AS o SET attempts = u.attempts, last_error = u.reason, retry_at = u.retry_at, first_failed_at = COALESCE(o.first_failed_at, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)),
   due_at = CASE WHEN o.due_at IS NULL THEN NULL ELSE max(COALESCE(o.deliver_at, 0), COALESCE(u.retry_at, 0)) END
  FROM (SELECT value ->> 0 AS lane, unhex(value ->> 1) AS id, value ->> 2 AS attempts, value ->> 3 AS reason, value ->> 4 AS retry_at, key + 1 AS ord FROM json_each(?1)) u WHERE o.lane = u.lane AND o.id = u.id
