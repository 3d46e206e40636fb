WITH u AS MATERIALIZED (SELECT * FROM unnest($1::integer[], $2::uuid[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::bytea[],
  $11::bigint[], $12::bigint[], $13::text[], $14::smallint[], $15::text[], $16::text[], $17::bigint[], $18::text[], $19::bytea[],
  $20::text[], $21::text[], $22::text[], $23::text[]) WITH ORDINALITY AS u(lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers, body, deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions, correlation_id, causation_id, traceparent, tracestate, ord)),
x AS MATERIALIZED (SELECT 1 FROM u CROSS JOIN LATERAL (
    (SELECT 1 FROM "postrider_outbox" p WHERE p.lane = ANY ($24::integer[]) AND p.id = u.id LIMIT 1)
    UNION ALL (SELECT 1 FROM "postrider_deferred" p WHERE p.lane = ANY ($24::integer[]) AND p.id = u.id LIMIT 1)) x LIMIT 1)
INSERT INTO "postrider_outbox" (lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers, body, deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions, correlation_id, causation_id, traceparent, tracestate)
SELECT u.lane, u.id, u.key_hash, u.ordering_key, u.transport, u.message_type, u.destination, u.content_type, u.headers, u.body, u.deliver_at, u.created_at, u.tenant, u.envelope, u.ce_source, u.ce_subject, u.ce_time, u.ce_dataschema, u.ce_extensions, u.correlation_id, u.causation_id, u.traceparent, u.tracestate FROM u WHERE NOT EXISTS (SELECT 1 FROM x) ORDER BY u.ord
ON CONFLICT (lane, id) DO NOTHING RETURNING id
