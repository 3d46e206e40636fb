-- +goose Up
-- Postrider, SQL Server, version 1. Instants are microseconds since 1970 UTC. Names
-- that are compared are the bytes of their UTF-8: every collation takes a name for
-- equal to one with spaces behind it. Bytes are equal to the same with zeros behind
-- them, which no name has; keys, which may, are compared beside their hash. The
-- database needs READ_COMMITTED_SNAPSHOT ON.

-- Numbers are drawn from one cache for all sessions, so their order is that of the
-- draws; a crash loses what is left of the cache.
CREATE SEQUENCE {outbox_pos} AS BIGINT START WITH 1 INCREMENT BY 1 NO CYCLE CACHE 1000;

-- What may be NULL says so: else a session's settings would decide it.

-- Ready rows. pos orders a lane and is drawn in the INSERT. No index has a condition:
-- under wrong settings of a session writes to such a table fail.
CREATE TABLE {outbox} (
    pos              BIGINT          NOT NULL DEFAULT (NEXT VALUE FOR {outbox_pos}) CHECK (pos > 0),
    key_hash         BIGINT          NULL,
    created_at       BIGINT          NOT NULL DEFAULT (DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME())),
    deliver_at       BIGINT          NULL,
    ce_time          BIGINT          NULL,
    retry_at         BIGINT          NULL,
    first_failed_at  BIGINT          NULL,
    claim_until      BIGINT          NULL,
    id               BINARY(16)      NOT NULL CHECK (id <> 0x00000000000000000000000000000000),
    lane             INT             NOT NULL,
    attempts         INT             NOT NULL DEFAULT 0,
    envelope         SMALLINT        NOT NULL DEFAULT 0,
    transport        VARBINARY(255)  NOT NULL,
    message_type     NVARCHAR(255)   NOT NULL,
    destination      NVARCHAR(1024)  NOT NULL,
    content_type     NVARCHAR(255)   NULL,
    tenant           NVARCHAR(255)   NULL,
    ordering_key     VARBINARY(1024) NULL,
    headers          VARBINARY(MAX)  NULL,
    body             VARBINARY(MAX)  NULL,
    ce_source        NVARCHAR(1024)  NULL,
    ce_subject       NVARCHAR(1024)  NULL,
    ce_dataschema    NVARCHAR(1024)  NULL,
    ce_extensions    VARBINARY(MAX)  NULL,
    correlation_id   NVARCHAR(255)   NULL,
    causation_id     NVARCHAR(255)   NULL,
    traceparent      NVARCHAR(255)   NULL,
    tracestate       NVARCHAR(MAX)   NULL,
    last_error       NVARCHAR(MAX)   NULL,
    claim_token      VARBINARY(16)   NULL,
    CONSTRAINT {=outbox_pk} PRIMARY KEY CLUSTERED (lane, pos),
    CONSTRAINT {=outbox_id} UNIQUE NONCLUSTERED (lane, id)
);

CREATE NONCLUSTERED INDEX {=outbox_key} ON {outbox} (lane, key_hash, pos);

-- Scheduled rows, unordered rows that wait for a retry, and rows of parked keys
-- (due_at NULL).
CREATE TABLE {deferred} (
    pos              BIGINT          NOT NULL DEFAULT (NEXT VALUE FOR {outbox_pos}),
    key_hash         BIGINT          NULL,
    due_at           BIGINT          NULL,
    created_at       BIGINT          NOT NULL DEFAULT (DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME())),
    deliver_at       BIGINT          NULL,
    ce_time          BIGINT          NULL,
    retry_at         BIGINT          NULL,
    first_failed_at  BIGINT          NULL,
    claim_until      BIGINT          NULL,
    id               BINARY(16)      NOT NULL CHECK (id <> 0x00000000000000000000000000000000),
    lane             INT             NOT NULL,
    attempts         INT             NOT NULL DEFAULT 0,
    envelope         SMALLINT        NOT NULL DEFAULT 0,
    transport        VARBINARY(255)  NOT NULL,
    message_type     NVARCHAR(255)   NOT NULL,
    destination      NVARCHAR(1024)  NOT NULL,
    content_type     NVARCHAR(255)   NULL,
    tenant           NVARCHAR(255)   NULL,
    ordering_key     VARBINARY(1024) NULL,
    headers          VARBINARY(MAX)  NULL,
    body             VARBINARY(MAX)  NULL,
    ce_source        NVARCHAR(1024)  NULL,
    ce_subject       NVARCHAR(1024)  NULL,
    ce_dataschema    NVARCHAR(1024)  NULL,
    ce_extensions    VARBINARY(MAX)  NULL,
    correlation_id   NVARCHAR(255)   NULL,
    causation_id     NVARCHAR(255)   NULL,
    traceparent      NVARCHAR(255)   NULL,
    tracestate       NVARCHAR(MAX)   NULL,
    last_error       NVARCHAR(MAX)   NULL,
    claim_token      VARBINARY(16)   NULL,
    CONSTRAINT {=deferred_pk} PRIMARY KEY CLUSTERED (lane, id)
);

CREATE NONCLUSTERED INDEX {=deferred_due} ON {deferred} (lane, due_at, pos);

CREATE NONCLUSTERED INDEX {=deferred_parked} ON {deferred} (lane, key_hash, due_at, pos);

-- later_out counts the delivered messages of the row's key that lie behind it.
CREATE TABLE {dead} (
    pos              BIGINT          NOT NULL,
    key_hash         BIGINT          NULL,
    died_at          BIGINT          NOT NULL,
    later_out        BIGINT          NOT NULL DEFAULT 0,
    created_at       BIGINT          NOT NULL,
    deliver_at       BIGINT          NULL,
    ce_time          BIGINT          NULL,
    first_failed_at  BIGINT          NULL,
    id               BINARY(16)      NOT NULL,
    lane             INT             NOT NULL,
    attempts         INT             NOT NULL DEFAULT 0,
    envelope         SMALLINT        NOT NULL DEFAULT 0,
    transport        VARBINARY(255)  NOT NULL,
    message_type     NVARCHAR(255)   NOT NULL,
    destination      NVARCHAR(1024)  NOT NULL,
    content_type     NVARCHAR(255)   NULL,
    tenant           NVARCHAR(255)   NULL,
    ordering_key     VARBINARY(1024) NULL,
    headers          VARBINARY(MAX)  NULL,
    body             VARBINARY(MAX)  NULL,
    ce_source        NVARCHAR(1024)  NULL,
    ce_subject       NVARCHAR(1024)  NULL,
    ce_dataschema    NVARCHAR(1024)  NULL,
    ce_extensions    VARBINARY(MAX)  NULL,
    correlation_id   NVARCHAR(255)   NULL,
    causation_id     NVARCHAR(255)   NULL,
    traceparent      NVARCHAR(255)   NULL,
    tracestate       NVARCHAR(MAX)   NULL,
    last_error       NVARCHAR(MAX)   NULL,
    reason           NVARCHAR(MAX)   NOT NULL,
    CONSTRAINT {=dead_pk} PRIMARY KEY CLUSTERED (id)
);

CREATE NONCLUSTERED INDEX {=dead_time} ON {dead} (died_at, id);

CREATE NONCLUSTERED INDEX {=dead_route} ON {dead} (transport, died_at, id);

CREATE NONCLUSTERED INDEX {=dead_key} ON {dead} (lane, key_hash, pos);

CREATE TABLE {routes} (
    name             VARBINARY(255)  NOT NULL,
    first_lane       INT             NOT NULL,
    ordered_lanes    INT             NOT NULL,
    unordered_lanes  INT             NOT NULL,
    CONSTRAINT {=routes_pk} PRIMARY KEY CLUSTERED (name)
);

-- The row that the fence reads. Only acquisition, release and operators write it.
CREATE TABLE {lanes} (
    lane             INT             NOT NULL,
    route            VARBINARY(255)  NOT NULL,
    is_ordered       SMALLINT        NOT NULL,
    unclean          SMALLINT        NOT NULL DEFAULT 0,
    epoch            BIGINT          NOT NULL DEFAULT 0,
    config           BIGINT          NOT NULL DEFAULT 0,
    owner            BINARY(16)      NULL,
    CONSTRAINT {=lanes_pk} PRIMARY KEY CLUSTERED (lane)
);

CREATE TABLE {lane_marks} (
    lane             INT             NOT NULL,
    tried_to         BIGINT          NOT NULL DEFAULT 0,
    config_seen      BIGINT          NOT NULL DEFAULT 0,
    CONSTRAINT {=lane_marks_pk} PRIMARY KEY CLUSTERED (lane)
);

-- One window per owner, for all its lanes. routes is a JSON list of names.
CREATE TABLE {relays} (
    owner            BINARY(16)      NOT NULL,
    expires_at       BIGINT          NOT NULL,
    ended            SMALLINT        NOT NULL DEFAULT 0,
    routes           NVARCHAR(MAX)   NOT NULL,
    CONSTRAINT {=relays_pk} PRIMARY KEY CLUSTERED (owner)
);

-- A clustered key ends at 900 bytes, which is less than a key may have.
CREATE TABLE {parked_keys} (
    lane             INT             NOT NULL,
    key_hash         BIGINT          NOT NULL,
    ordering_key     VARBINARY(1024) NOT NULL,
    unparking        SMALLINT        NOT NULL DEFAULT 0,
    parked_by        NVARCHAR(MAX)   NOT NULL,
    parked_at        BIGINT          NOT NULL,
    why              NVARCHAR(MAX)   NOT NULL,
    CONSTRAINT {=parked_keys_pk} PRIMARY KEY NONCLUSTERED (lane, key_hash, ordering_key)
);

CREATE TABLE {audit} (
    num              BIGINT          NOT NULL IDENTITY (1, 1),
    at               BIGINT          NOT NULL,
    done_by          NVARCHAR(MAX)   NOT NULL,
    what             NVARCHAR(255)   NOT NULL,
    how_many         BIGINT          NOT NULL,
    detail           NVARCHAR(MAX)   NULL,
    CONSTRAINT {=audit_pk} PRIMARY KEY CLUSTERED (num)
);

CREATE NONCLUSTERED INDEX {=audit_time} ON {audit} (at);

-- A row with a token is a claim, which expires with its lease.
CREATE TABLE {inbox} (
    processed_at     BIGINT          NOT NULL,
    expires_at       BIGINT          NULL,
    consumer         VARBINARY(255)  NOT NULL,
    message_id       VARBINARY(255)  NOT NULL,
    token            VARBINARY(16)   NULL,
    CONSTRAINT {=inbox_pk} PRIMARY KEY CLUSTERED (consumer, message_id)
);

CREATE NONCLUSTERED INDEX {=inbox_expiry} ON {inbox} (expires_at);

-- Many row locks never become one on the table, which would stop every producer.
ALTER TABLE {outbox} SET (LOCK_ESCALATION = DISABLE);

ALTER TABLE {deferred} SET (LOCK_ESCALATION = DISABLE);

ALTER TABLE {dead} SET (LOCK_ESCALATION = DISABLE);

ALTER TABLE {lanes} SET (LOCK_ESCALATION = DISABLE);

ALTER TABLE {lane_marks} SET (LOCK_ESCALATION = DISABLE);

ALTER TABLE {relays} SET (LOCK_ESCALATION = DISABLE);

ALTER TABLE {parked_keys} SET (LOCK_ESCALATION = DISABLE);

ALTER TABLE {inbox} SET (LOCK_ESCALATION = DISABLE);

CREATE TABLE {meta} (
    name             NVARCHAR(64)    NOT NULL,
    value            NVARCHAR(255)   NOT NULL,
    CONSTRAINT {=meta_pk} PRIMARY KEY CLUSTERED (name)
);

INSERT INTO {meta} (name, value) VALUES (N'schema', N'1'), (N'dispatch', N'lanes');
