INSERT INTO "postrider_outbox" (lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers, body, deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions, correlation_id, causation_id, traceparent, tracestate) VALUES ($1::integer, $2::uuid, $3::bigint, $4::bytea, $5::text, $6::text, $7::text, $8::text, $9::bytea, $10::bytea,
  $11::bigint, $12::bigint, $13::text, $14::smallint, $15::text, $16::text, $17::bigint, $18::text, $19::bytea,
  $20::text, $21::text, $22::text, $23::text)
