[[
UNION ALL |
(SELECT #0, o.pos, o.lane, o.id, o.key_hash, o.ordering_key, o.transport, o.message_type, o.destination, o.content_type, o.headers, CASE WHEN octet_length(o.body) > 2097152 THEN NULL ELSE o.body END, o.deliver_at, o.created_at, o.tenant, o.envelope, o.ce_source, o.ce_subject, o.ce_time, o.ce_dataschema, o.ce_extensions, o.correlation_id, o.causation_id, o.traceparent, o.tracestate, o.attempts, o.last_error, o.retry_at, CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) THEN 1 ELSE 0 END, NULL, NULL, CASE WHEN octet_length(o.body) > 2097152 THEN octet_length(o.body) END
  FROM `postrider_outbox` o FORCE INDEX (`postrider_outbox_key`) WHERE o.lane = #1 AND o.key_hash = #4 AND o.ordering_key = #5 AND o.pos > #2 AND o.pos <= #3
 ORDER BY o.pos LIMIT 32)
UNION ALL
(SELECT #0, o.pos, o.lane, o.id, o.key_hash, o.ordering_key, o.transport, o.message_type, o.destination, o.content_type, o.headers, CASE WHEN octet_length(o.body) > 2097152 THEN NULL ELSE o.body END, o.deliver_at, o.created_at, o.tenant, o.envelope, o.ce_source, o.ce_subject, o.ce_time, o.ce_dataschema, o.ce_extensions, o.correlation_id, o.causation_id, o.traceparent, o.tracestate, o.attempts, o.last_error, o.retry_at, CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) THEN 1 ELSE 0 END, NULL, NULL, CASE WHEN octet_length(o.body) > 2097152 THEN octet_length(o.body) END
  FROM `postrider_outbox` o FORCE INDEX (`postrider_outbox_lane`) WHERE #4 IS NULL AND o.lane = #1 AND o.pos > #2 AND o.pos <= #3
 ORDER BY o.pos LIMIT 32)]]
