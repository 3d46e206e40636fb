SELECT u.ord, o.pos, o.lane, o.id, o.key_hash, o.ordering_key, o.transport, o.message_type, o.destination, o.content_type, o.headers, CASE WHEN DATALENGTH(o.body) > 2097152 THEN NULL ELSE o.body END, o.deliver_at, o.created_at, o.tenant, o.envelope, o.ce_source, o.ce_subject, o.ce_time, o.ce_dataschema, o.ce_extensions, o.correlation_id, o.causation_id, o.traceparent, o.tracestate, o.attempts, o.last_error, o.retry_at, CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()) THEN 1 ELSE 0 END, NULL, NULL, CASE WHEN DATALENGTH(o.body) > 2097152 THEN DATALENGTH(o.body) END
  FROM (SELECT j.ord, j.lane AS lane, j.after AS after, j.upto AS upto, j.key_hash AS key_hash, CONVERT(VARBINARY(1024), j.ordering_key, 2) AS ordering_key FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', after BIGINT '$[2]', upto BIGINT '$[3]', key_hash BIGINT '$[4]', ordering_key VARCHAR(2048) '$[5]') j) u
 CROSS APPLY (
  SELECT h.* FROM (SELECT TOP (32) o.* FROM [postrider_outbox] o WITH (INDEX ([postrider_outbox_key]), FORCESEEK)
    WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key AND o.pos > u.after AND o.pos <= u.upto
    ORDER BY o.pos) h
  UNION ALL
  SELECT h.* FROM (SELECT TOP (32) o.* FROM [postrider_outbox] o WITH (INDEX ([postrider_outbox_pk]), FORCESEEK)
    WHERE u.key_hash IS NULL AND o.lane = u.lane AND o.pos > u.after AND o.pos <= u.upto
    ORDER BY o.pos) h) o
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)
