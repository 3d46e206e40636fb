SELECT o.pos, o.lane, o.id, o.key_hash, o.ordering_key, o.transport, o.message_type, o.destination, o.content_type, o.headers, o.body, o.deliver_at, o.created_at, o.tenant, o.envelope, o.ce_source, o.ce_subject, o.ce_time, o.ce_dataschema, o.ce_extensions, o.correlation_id, o.causation_id, o.traceparent, o.tracestate, o.attempts, o.last_error, o.retry_at, o.first_failed_at, o.reason, o.died_at, o.later_out FROM (
  SELECT pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers,
    CASE WHEN $3::smallint <> 0 THEN NULL ELSE body END AS body,
    deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions,
    correlation_id, causation_id, traceparent, tracestate, attempts, last_error, NULL::bigint AS retry_at, first_failed_at, reason, died_at, later_out
   FROM "postrider_dead" WHERE transport = $4::text AND (died_at, id) > ($1::bigint, $2::uuid) ORDER BY died_at, id LIMIT 32) o ORDER BY o.died_at, o.id
