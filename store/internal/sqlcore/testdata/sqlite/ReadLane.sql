SELECT * FROM (
  SELECT pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers, body, deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions, correlation_id, causation_id, traceparent, tracestate, attempts, last_error, retry_at FROM (SELECT * FROM "postrider_outbox" o WHERE o.lane = ?2 AND o.id > ?3 AND o.key_hash IS NOT NULL
    AND (o.deliver_at IS NULL OR o.deliver_at <= ?1) AND (o.retry_at IS NULL OR o.retry_at <= ?1)
    AND (o.claim_until IS NULL OR o.claim_until <= ?1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.lane, o.id LIMIT 32)
  UNION ALL
  SELECT pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers, body, deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions, correlation_id, causation_id, traceparent, tracestate, attempts, last_error, retry_at FROM (SELECT * FROM "postrider_deferred" o WHERE o.lane = ?2 AND o.id > ?3 AND o.key_hash IS NOT NULL
    AND o.due_at <= ?1 AND (o.claim_until IS NULL OR o.claim_until <= ?1) AND (o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM "postrider_parked_keys" k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key)) ORDER BY o.lane, o.id LIMIT 32))
 ORDER BY id LIMIT 32
