SELECT min(due_at) FROM (SELECT (
  SELECT o.due_at FROM "postrider_deferred" o WHERE o.lane = u.lane AND o.due_at IS NOT NULL
     AND (o.claim_until IS NULL OR o.claim_until <= max(CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER), o.due_at))
   ORDER BY o.lane, o.due_at, o.pos LIMIT 1) AS due_at FROM (SELECT CAST(substr(?2, value + 0, 20) AS INTEGER) AS lane, key + 1 AS ord FROM json_each(?1)) u)
