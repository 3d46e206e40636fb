SELECT * FROM (
  SELECT d.pos, d.lane, d.id, d.key_hash, d.ordering_key, d.transport, d.message_type, d.destination, d.content_type, d.headers, d.body, d.deliver_at, d.created_at, d.tenant, d.envelope, d.ce_source, d.ce_subject, d.ce_time, d.ce_dataschema, d.ce_extensions, d.correlation_id, d.causation_id, d.traceparent, d.tracestate, d.attempts, d.last_error, d.retry_at FROM "postrider_lanes" l CROSS JOIN "postrider_outbox" d WHERE l.is_ordered = 0 AND d.pos IN
   (SELECT o.pos FROM "postrider_outbox" o WHERE o.lane = l.lane AND o.id > ?2
    AND (o.deliver_at IS NULL OR o.deliver_at <= ?1) AND (o.retry_at IS NULL OR o.retry_at <= ?1)
    AND (o.claim_until IS NULL OR o.claim_until <= ?1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.lane, o.id LIMIT 32)
  UNION ALL
  SELECT d.pos, d.lane, d.id, d.key_hash, d.ordering_key, d.transport, d.message_type, d.destination, d.content_type, d.headers, d.body, d.deliver_at, d.created_at, d.tenant, d.envelope, d.ce_source, d.ce_subject, d.ce_time, d.ce_dataschema, d.ce_extensions, d.correlation_id, d.causation_id, d.traceparent, d.tracestate, d.attempts, d.last_error, d.retry_at FROM "postrider_lanes" l CROSS JOIN "postrider_deferred" d WHERE l.is_ordered = 0 AND d.rowid IN
   (SELECT o.rowid FROM "postrider_deferred" o WHERE o.lane = l.lane AND o.id > ?2
    AND o.due_at <= ?1 AND (o.claim_until IS NULL OR o.claim_until <= ?1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.lane, o.id LIMIT 32))
 ORDER BY id LIMIT 32
