-- +goose Up
-- Postrider, Oracle 19c and later, version 1. Instants are microseconds since 1970
-- UTC. Names that are compared are bytes, which no setting of a session compares
-- otherwise. Oracle takes no text, and no bytes, for NULL: the body of a message that
-- has one of no bytes is NULL, and body_empty 1.

-- In the order of the draws, on several instances too.
CREATE SEQUENCE {outbox_pos} CACHE 1000 ORDER;

-- Ready rows. pos orders a lane and is drawn in the INSERT.
CREATE TABLE {outbox} (
    pos              NUMBER(19)           DEFAULT ON NULL {outbox_pos}.NEXTVAL NOT NULL CHECK (pos > 0),
    key_hash         NUMBER(19),
    created_at       NUMBER(19)           DEFAULT (FLOOR(
                       EXTRACT(DAY FROM (SYS_EXTRACT_UTC(SYSTIMESTAMP) - TIMESTAMP '1970-01-01 00:00:00')) * 86400000000
                       + EXTRACT(HOUR FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 3600000000
                       + EXTRACT(MINUTE FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 60000000
                       + EXTRACT(SECOND FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 1000000)) NOT NULL,
    deliver_at       NUMBER(19),
    ce_time          NUMBER(19),
    retry_at         NUMBER(19),
    first_failed_at  NUMBER(19),
    claim_until      NUMBER(19),
    id               RAW(16)              NOT NULL CHECK (LENGTH(RAWTOHEX(id)) = 32 AND id <> HEXTORAW('00000000000000000000000000000000')),
    lane             NUMBER(10)           NOT NULL,
    attempts         NUMBER(10)           DEFAULT 0 NOT NULL,
    envelope         NUMBER(5)            DEFAULT 0 NOT NULL,
    body_empty       NUMBER(1)            DEFAULT 0 NOT NULL,
    transport        RAW(255)             NOT NULL,
    message_type     VARCHAR2(255 BYTE)   NOT NULL,
    destination      VARCHAR2(1024 BYTE)  NOT NULL,
    content_type     VARCHAR2(255 BYTE),
    tenant           VARCHAR2(255 BYTE),
    ordering_key     RAW(1024),
    ce_source        VARCHAR2(1024 BYTE),
    ce_subject       VARCHAR2(1024 BYTE),
    ce_dataschema    VARCHAR2(1024 BYTE),
    correlation_id   VARCHAR2(255 BYTE),
    causation_id     VARCHAR2(255 BYTE),
    traceparent      VARCHAR2(255 BYTE),
    tracestate       CLOB,
    headers          BLOB,
    ce_extensions    BLOB,
    body             BLOB,
    last_error       CLOB,
    claim_token      RAW(16),
    CONSTRAINT {=outbox_pk} PRIMARY KEY (lane, pos),
    CONSTRAINT {=outbox_id} UNIQUE (lane, id)
) LOB (headers, body, ce_extensions) STORE AS (CACHE);

CREATE INDEX {=outbox_key} ON {outbox} (lane, key_hash, ordering_key, pos);

-- Scheduled rows, unordered rows that wait for a retry, and rows of parked keys
-- (due_at NULL).
CREATE TABLE {deferred} (
    pos              NUMBER(19)           DEFAULT ON NULL {outbox_pos}.NEXTVAL NOT NULL,
    key_hash         NUMBER(19),
    due_at           NUMBER(19),
    created_at       NUMBER(19)           DEFAULT (FLOOR(
                       EXTRACT(DAY FROM (SYS_EXTRACT_UTC(SYSTIMESTAMP) - TIMESTAMP '1970-01-01 00:00:00')) * 86400000000
                       + EXTRACT(HOUR FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 3600000000
                       + EXTRACT(MINUTE FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 60000000
                       + EXTRACT(SECOND FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 1000000)) NOT NULL,
    deliver_at       NUMBER(19),
    ce_time          NUMBER(19),
    retry_at         NUMBER(19),
    first_failed_at  NUMBER(19),
    claim_until      NUMBER(19),
    id               RAW(16)              NOT NULL CHECK (LENGTH(RAWTOHEX(id)) = 32 AND id <> HEXTORAW('00000000000000000000000000000000')),
    lane             NUMBER(10)           NOT NULL,
    attempts         NUMBER(10)           DEFAULT 0 NOT NULL,
    envelope         NUMBER(5)            DEFAULT 0 NOT NULL,
    body_empty       NUMBER(1)            DEFAULT 0 NOT NULL,
    transport        RAW(255)             NOT NULL,
    message_type     VARCHAR2(255 BYTE)   NOT NULL,
    destination      VARCHAR2(1024 BYTE)  NOT NULL,
    content_type     VARCHAR2(255 BYTE),
    tenant           VARCHAR2(255 BYTE),
    ordering_key     RAW(1024),
    ce_source        VARCHAR2(1024 BYTE),
    ce_subject       VARCHAR2(1024 BYTE),
    ce_dataschema    VARCHAR2(1024 BYTE),
    correlation_id   VARCHAR2(255 BYTE),
    causation_id     VARCHAR2(255 BYTE),
    traceparent      VARCHAR2(255 BYTE),
    tracestate       CLOB,
    headers          BLOB,
    ce_extensions    BLOB,
    body             BLOB,
    last_error       CLOB,
    claim_token      RAW(16),
    CONSTRAINT {=deferred_pk} PRIMARY KEY (lane, id)
) LOB (headers, body, ce_extensions) STORE AS (CACHE);

CREATE INDEX {=deferred_due} ON {deferred} (lane, due_at, pos);

CREATE INDEX {=deferred_parked} ON {deferred} (lane, key_hash, ordering_key, due_at, pos);

-- later_out counts the delivered messages of the row's key that lie behind it.
CREATE TABLE {dead} (
    pos              NUMBER(19)           NOT NULL,
    key_hash         NUMBER(19),
    died_at          NUMBER(19)           NOT NULL,
    later_out        NUMBER(19)           DEFAULT 0 NOT NULL,
    created_at       NUMBER(19)           NOT NULL,
    deliver_at       NUMBER(19),
    ce_time          NUMBER(19),
    first_failed_at  NUMBER(19),
    id               RAW(16)              NOT NULL,
    lane             NUMBER(10)           NOT NULL,
    attempts         NUMBER(10)           DEFAULT 0 NOT NULL,
    envelope         NUMBER(5)            DEFAULT 0 NOT NULL,
    body_empty       NUMBER(1)            DEFAULT 0 NOT NULL,
    transport        RAW(255)             NOT NULL,
    message_type     VARCHAR2(255 BYTE)   NOT NULL,
    destination      VARCHAR2(1024 BYTE)  NOT NULL,
    content_type     VARCHAR2(255 BYTE),
    tenant           VARCHAR2(255 BYTE),
    ordering_key     RAW(1024),
    ce_source        VARCHAR2(1024 BYTE),
    ce_subject       VARCHAR2(1024 BYTE),
    ce_dataschema    VARCHAR2(1024 BYTE),
    correlation_id   VARCHAR2(255 BYTE),
    causation_id     VARCHAR2(255 BYTE),
    traceparent      VARCHAR2(255 BYTE),
    tracestate       CLOB,
    headers          BLOB,
    ce_extensions    BLOB,
    body             BLOB,
    last_error       CLOB,
    reason           CLOB                 NOT NULL,
    CONSTRAINT {=dead_pk} PRIMARY KEY (id)
) LOB (headers, body, ce_extensions) STORE AS (CACHE);

CREATE INDEX {=dead_time} ON {dead} (died_at, id);

CREATE INDEX {=dead_route} ON {dead} (transport, died_at, id);

CREATE INDEX {=dead_key} ON {dead} (lane, key_hash, pos);

CREATE TABLE {routes} (
    name             RAW(255)             NOT NULL,
    first_lane       NUMBER(10)           NOT NULL,
    ordered_lanes    NUMBER(10)           NOT NULL,
    unordered_lanes  NUMBER(10)           NOT NULL,
    CONSTRAINT {=routes_pk} PRIMARY KEY (name)
);

-- The row that the fence reads. Only acquisition, release and operators write it.
-- Each transaction that locks a row takes a place in its block, of which these
-- tables of a few blocks have some from the start.
CREATE TABLE {lanes} (
    lane             NUMBER(10)           NOT NULL,
    route            RAW(255)             NOT NULL,
    is_ordered       NUMBER(5)            NOT NULL,
    unclean          NUMBER(5)            DEFAULT 0 NOT NULL,
    epoch            NUMBER(19)           DEFAULT 0 NOT NULL,
    config           NUMBER(19)           DEFAULT 0 NOT NULL,
    owner            RAW(16),
    CONSTRAINT {=lanes_pk} PRIMARY KEY (lane)
) INITRANS 16;

CREATE TABLE {lane_marks} (
    lane             NUMBER(10)           NOT NULL,
    tried_to         NUMBER(19)           DEFAULT 0 NOT NULL,
    config_seen      NUMBER(19)           DEFAULT 0 NOT NULL,
    CONSTRAINT {=lane_marks_pk} PRIMARY KEY (lane)
) INITRANS 16;

-- One window per owner, for all its lanes. routes is a JSON list of names.
CREATE TABLE {relays} (
    owner            RAW(16)              NOT NULL,
    expires_at       NUMBER(19)           NOT NULL,
    ended            NUMBER(5)            DEFAULT 0 NOT NULL,
    routes           CLOB                 NOT NULL,
    CONSTRAINT {=relays_pk} PRIMARY KEY (owner)
) INITRANS 16;

CREATE TABLE {parked_keys} (
    lane             NUMBER(10)           NOT NULL,
    key_hash         NUMBER(19)           NOT NULL,
    ordering_key     RAW(1024)            NOT NULL,
    unparking        NUMBER(5)            DEFAULT 0 NOT NULL,
    parked_by        VARCHAR2(4000 BYTE),
    parked_at        NUMBER(19)           NOT NULL,
    why              VARCHAR2(4000 BYTE),
    CONSTRAINT {=parked_keys_pk} PRIMARY KEY (lane, key_hash, ordering_key)
);

CREATE TABLE {audit} (
    num              NUMBER(19)           GENERATED BY DEFAULT ON NULL AS IDENTITY,
    at               NUMBER(19)           NOT NULL,
    done_by          VARCHAR2(4000 BYTE),
    what             VARCHAR2(255 BYTE)   NOT NULL,
    how_many         NUMBER(19)           NOT NULL,
    detail           CLOB,
    CONSTRAINT {=audit_pk} PRIMARY KEY (num)
);

CREATE INDEX {=audit_time} ON {audit} (at);

-- A row with a token is a claim, which expires with its lease. repeats counts
-- deliveries of a message that was processed already.
CREATE TABLE {inbox} (
    processed_at     NUMBER(19)           NOT NULL,
    expires_at       NUMBER(19),
    repeats          NUMBER(19)           DEFAULT 0 NOT NULL,
    consumer         RAW(255)             NOT NULL,
    message_id       RAW(255)             NOT NULL,
    token            RAW(16),
    CONSTRAINT {=inbox_pk} PRIMARY KEY (consumer, message_id)
) INITRANS 16;

CREATE INDEX {=inbox_expiry} ON {inbox} (expires_at);

CREATE TABLE {meta} (
    name             VARCHAR2(64 BYTE)    NOT NULL,
    value            VARCHAR2(255 BYTE)   NOT NULL,
    CONSTRAINT {=meta_pk} PRIMARY KEY (name)
);

INSERT INTO {meta} (name, value) SELECT 'schema', '1' FROM DUAL UNION ALL SELECT 'dispatch', 'lanes' FROM DUAL;
