SET NOCOUNT ON;
DECLARE @back TABLE (id BINARY(16) NOT NULL);
INSERT INTO [postrider_outbox] (pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers, body, deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions, correlation_id, causation_id, traceparent, tracestate)
OUTPUT inserted.id INTO @back (id)
SELECT d.pos, d.lane, d.id, d.key_hash, d.ordering_key, d.transport, d.message_type, d.destination, d.content_type, d.headers, d.body, d.deliver_at, d.created_at, d.tenant, d.envelope, d.ce_source, d.ce_subject, d.ce_time, d.ce_dataschema, d.ce_extensions, d.correlation_id, d.causation_id, d.traceparent, d.tracestate
  FROM (SELECT j.ord, CONVERT(BINARY(16), j.id, 2) AS id FROM OPENJSON(@p1) WITH (ord INT '$[0]', id CHAR(32) '$[1]') j) u JOIN [postrider_dead] d WITH (UPDLOCK, ROWLOCK, INDEX ([postrider_dead_pk]), FORCESEEK) ON d.id = u.id
 WHERE d.pos > 0 AND NOT EXISTS (SELECT 1 FROM [postrider_outbox] p WITH (INDEX ([postrider_outbox_id]), FORCESEEK) WHERE p.lane = d.lane AND p.id = d.id)
   AND NOT EXISTS (SELECT 1 FROM [postrider_outbox] p WITH (INDEX ([postrider_outbox_pk]), FORCESEEK) WHERE p.lane = d.lane AND p.pos = d.pos)
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1);
INSERT INTO [postrider_outbox] (pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers, body, deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions, correlation_id, causation_id, traceparent, tracestate)
OUTPUT inserted.id INTO @back (id)
SELECT NEXT VALUE FOR [postrider_outbox_pos] OVER (ORDER BY d.lane, d.pos), d.lane, d.id, d.key_hash, d.ordering_key, d.transport, d.message_type, d.destination, d.content_type, d.headers, d.body, d.deliver_at, d.created_at, d.tenant, d.envelope, d.ce_source, d.ce_subject, d.ce_time, d.ce_dataschema, d.ce_extensions, d.correlation_id, d.causation_id, d.traceparent, d.tracestate
  FROM (SELECT j.ord, CONVERT(BINARY(16), j.id, 2) AS id FROM OPENJSON(@p1) WITH (ord INT '$[0]', id CHAR(32) '$[1]') j) u JOIN [postrider_dead] d WITH (UPDLOCK, ROWLOCK, INDEX ([postrider_dead_pk]), FORCESEEK) ON d.id = u.id
 WHERE NOT EXISTS (SELECT 1 FROM [postrider_outbox] p WITH (INDEX ([postrider_outbox_id]), FORCESEEK) WHERE p.lane = d.lane AND p.id = d.id)
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1);
SELECT id FROM @back
