WITH u AS MATERIALIZED (SELECT * FROM (SELECT value ->> 0 AS lane, value ->> 1 AS after, value ->> 2 AS upto, value ->> 3 AS key_hash, unhex(value ->> 4) AS ordering_key, key + 1 AS ord FROM json_each(?1)) u)
SELECT u.ord, o.pos, o.lane, o.id, o.key_hash, o.ordering_key, o.transport, o.message_type, o.destination, o.content_type, o.headers, o.body, o.deliver_at, o.created_at, o.tenant, o.envelope, o.ce_source, o.ce_subject, o.ce_time, o.ce_dataschema, o.ce_extensions, o.correlation_id, o.causation_id, o.traceparent, o.tracestate, o.attempts, o.last_error, o.retry_at, CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER) THEN 1 ELSE 0 END, NULL, NULL, NULL FROM u CROSS JOIN "postrider_outbox" o
 WHERE u.key_hash IS NOT NULL AND o.pos IN
  (SELECT p.pos FROM "postrider_outbox" p INDEXED BY "postrider_outbox_key" WHERE p.lane = u.lane AND p.key_hash = u.key_hash AND p.ordering_key = u.ordering_key
      AND p.pos > u.after AND p.pos <= u.upto ORDER BY p.pos LIMIT 32)
UNION ALL
SELECT u.ord, o.pos, o.lane, o.id, o.key_hash, o.ordering_key, o.transport, o.message_type, o.destination, o.content_type, o.headers, o.body, o.deliver_at, o.created_at, o.tenant, o.envelope, o.ce_source, o.ce_subject, o.ce_time, o.ce_dataschema, o.ce_extensions, o.correlation_id, o.causation_id, o.traceparent, o.tracestate, o.attempts, o.last_error, o.retry_at, CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER) THEN 1 ELSE 0 END, NULL, NULL, NULL FROM u CROSS JOIN "postrider_outbox" o
 WHERE u.key_hash IS NULL AND o.pos IN
  (SELECT p.pos FROM "postrider_outbox" p INDEXED BY "postrider_outbox_lane" WHERE p.lane = u.lane AND p.pos > u.after AND p.pos <= u.upto
    ORDER BY p.pos LIMIT 32)
