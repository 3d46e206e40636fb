SELECT TOP (32) pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers,
    CASE WHEN @p3 <> 0 THEN NULL ELSE body END,
    deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions,
    correlation_id, causation_id, traceparent, tracestate, attempts, last_error, NULL, first_failed_at, reason, died_at, later_out
  FROM [postrider_dead] WITH (INDEX ([postrider_dead_time]), FORCESEEK) WHERE died_at >= @p1 AND (died_at > @p1 OR id > CONVERT(BINARY(16), @p2)) ORDER BY died_at, id OPTION (MAXDOP 1)
