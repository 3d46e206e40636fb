SELECT pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers,
    CASE WHEN ?3 <> 0 THEN NULL ELSE body END,
    deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions,
    correlation_id, causation_id, traceparent, tracestate, attempts, last_error, NULL, first_failed_at, reason, died_at, later_out
  FROM `postrider_dead` FORCE INDEX (`postrider_dead_route`) WHERE transport = ?4 AND died_at >= ?1 AND (died_at > ?1 OR id > ?2) ORDER BY died_at, id LIMIT 32
