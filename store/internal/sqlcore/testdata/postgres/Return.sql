INSERT INTO "postrider_outbox" (pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers, body, deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions, correlation_id, causation_id, traceparent, tracestate, attempts, last_error, first_failed_at, retry_at, claim_token, claim_until)
SELECT CASE WHEN (SELECT 1 FROM "postrider_outbox" p WHERE p.lane = d.lane AND p.pos = d.pos LIMIT 1) IS NOT NULL THEN nextval('"postrider_outbox_pos"'::regclass) ELSE d.pos END,
   d.lane, d.id, d.key_hash, d.ordering_key, d.transport, d.message_type, d.destination, d.content_type, d.headers, d.body, d.deliver_at, d.created_at, d.tenant, d.envelope, d.ce_source, d.ce_subject, d.ce_time, d.ce_dataschema, d.ce_extensions, d.correlation_id, d.causation_id, d.traceparent, d.tracestate, d.attempts, d.last_error, d.first_failed_at, d.retry_at, d.claim_token, d.claim_until
  FROM unnest($1::integer[], $2::uuid[]) AS u(lane, id)
  JOIN "postrider_deferred" d ON d.lane = u.lane AND d.id = u.id ORDER BY d.lane, d.pos
ON CONFLICT (lane, id) DO NOTHING
