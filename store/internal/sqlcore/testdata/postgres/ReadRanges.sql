SELECT u.ord, o.pos, o.lane, o.id, o.key_hash, o.ordering_key, o.transport, o.message_type, o.destination, o.content_type, o.headers, CASE WHEN octet_length(o.body) > 2097152 THEN NULL ELSE o.body END, o.deliver_at, o.created_at, o.tenant, o.envelope, o.ce_source, o.ce_subject, o.ce_time, o.ce_dataschema, o.ce_extensions, o.correlation_id, o.causation_id, o.traceparent, o.tracestate, o.attempts, o.last_error, o.retry_at, CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint THEN 1 ELSE 0 END,
  CASE WHEN o.key_hash IS NULL OR u.after = 0 THEN NULL ELSE
   (SELECT p.pos FROM "postrider_outbox" p WHERE p.lane = o.lane AND p.key_hash = o.key_hash AND p.ordering_key = o.ordering_key
      AND p.pos + 0 <= u.after
      AND p.pos + 0 > CASE WHEN ($4::bigint[])[width_bucket(o.key_hash # u.lane, $4::bigint[])] = o.key_hash # u.lane AND ($5::integer[])[width_bucket(o.key_hash # u.lane, $4::bigint[])] = u.lane
                           THEN ($6::bigint[])[width_bucket(o.key_hash # u.lane, $4::bigint[])] ELSE 0 END
    ORDER BY p.pos + 0 DESC LIMIT 1) END, o.hint, CASE WHEN octet_length(o.body) > 2097152 THEN octet_length(o.body) END
  FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS u(lane, after, upto, ord)
 CROSS JOIN LATERAL (SELECT o.ctid AS hint, o.* FROM "postrider_outbox" o WHERE o.lane = u.lane AND o.pos > u.after AND o.pos <= u.upto
                      ORDER BY o.lane, o.pos LIMIT 32) o
