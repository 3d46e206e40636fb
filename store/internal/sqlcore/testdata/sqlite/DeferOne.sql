INSERT INTO "postrider_deferred" (lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers, body, deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions, correlation_id, causation_id, traceparent, tracestate, due_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?11
 WHERE NOT EXISTS (SELECT 1 FROM "postrider_outbox" p WHERE p.id = ?2 AND +p.lane IN (SELECT value FROM json_each(?24)))
   AND NOT EXISTS (SELECT 1 FROM "postrider_deferred" p WHERE p.id = ?2 AND +p.lane IN (SELECT value FROM json_each(?24)))
ON CONFLICT (lane, id) DO NOTHING
