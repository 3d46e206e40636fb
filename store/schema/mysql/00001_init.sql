-- +goose Up
-- Postrider, MySQL and MariaDB, version 1. Instants are microseconds since 1970
-- UTC. Names that are compared are bytes: a collation would take some for equal.

-- Ready rows. pos orders a lane and is drawn in the INSERT. No other index than the
-- primary key is unique: an INSERT that meets an id, or what is left of a deleted
-- one, in a unique index locks the gaps beside it until the transaction ends.
-- AUTO_INCREMENT wants outbox_pos; ARCHITECTURE.md says why it is no sequence.
CREATE TABLE IF NOT EXISTS {outbox} (
    pos              BIGINT          NOT NULL AUTO_INCREMENT,
    key_hash         BIGINT,
    created_at       BIGINT          NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))),
    deliver_at       BIGINT,
    ce_time          BIGINT,
    retry_at         BIGINT,
    first_failed_at  BIGINT,
    claim_until      BIGINT,
    id               BINARY(16)      NOT NULL CHECK (id <> 0x00000000000000000000000000000000),
    lane             INT             NOT NULL,
    attempts         INT             NOT NULL DEFAULT 0,
    envelope         SMALLINT        NOT NULL DEFAULT 0,
    transport        VARBINARY(255)  NOT NULL,
    message_type     VARCHAR(255)    NOT NULL,
    destination      TEXT            NOT NULL,
    content_type     VARCHAR(255),
    tenant           VARCHAR(255),
    ordering_key     VARBINARY(1024),
    headers          LONGBLOB,
    body             LONGBLOB,
    ce_source        TEXT,
    ce_subject       TEXT,
    ce_dataschema    TEXT,
    ce_extensions    LONGBLOB,
    correlation_id   VARCHAR(255),
    causation_id     VARCHAR(255),
    traceparent      VARCHAR(255),
    tracestate       TEXT,
    last_error       TEXT,
    claim_token      VARBINARY(16),
    PRIMARY KEY (lane, id),
    KEY {=outbox_lane} (lane, pos),
    KEY {=outbox_key} (lane, key_hash, pos),
    KEY {=outbox_pos} (pos)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

-- Scheduled rows, unordered rows that wait for a retry, and rows of parked keys
-- (due_at NULL). pos is the position that a row had, 0 if it had none; num is the
-- order of the inserts.
CREATE TABLE IF NOT EXISTS {deferred} (
    num              BIGINT          NOT NULL AUTO_INCREMENT,
    pos              BIGINT          NOT NULL DEFAULT 0,
    key_hash         BIGINT,
    due_at           BIGINT,
    created_at       BIGINT          NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))),
    deliver_at       BIGINT,
    ce_time          BIGINT,
    retry_at         BIGINT,
    first_failed_at  BIGINT,
    claim_until      BIGINT,
    id               BINARY(16)      NOT NULL CHECK (id <> 0x00000000000000000000000000000000),
    lane             INT             NOT NULL,
    attempts         INT             NOT NULL DEFAULT 0,
    envelope         SMALLINT        NOT NULL DEFAULT 0,
    transport        VARBINARY(255)  NOT NULL,
    message_type     VARCHAR(255)    NOT NULL,
    destination      TEXT            NOT NULL,
    content_type     VARCHAR(255),
    tenant           VARCHAR(255),
    ordering_key     VARBINARY(1024),
    headers          LONGBLOB,
    body             LONGBLOB,
    ce_source        TEXT,
    ce_subject       TEXT,
    ce_dataschema    TEXT,
    ce_extensions    LONGBLOB,
    correlation_id   VARCHAR(255),
    causation_id     VARCHAR(255),
    traceparent      VARCHAR(255),
    tracestate       TEXT,
    last_error       TEXT,
    claim_token      VARBINARY(16),
    PRIMARY KEY (lane, id),
    KEY {=deferred_due} (lane, due_at, num),
    KEY {=deferred_parked} (lane, key_hash, due_at, pos),
    KEY {=deferred_num} (num)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

-- later_out counts the delivered messages of the row's key that lie behind it.
CREATE TABLE IF NOT EXISTS {dead} (
    pos              BIGINT          NOT NULL,
    key_hash         BIGINT,
    died_at          BIGINT          NOT NULL,
    later_out        BIGINT          NOT NULL DEFAULT 0,
    created_at       BIGINT          NOT NULL,
    deliver_at       BIGINT,
    ce_time          BIGINT,
    first_failed_at  BIGINT,
    id               BINARY(16)      NOT NULL,
    lane             INT             NOT NULL,
    attempts         INT             NOT NULL DEFAULT 0,
    envelope         SMALLINT        NOT NULL DEFAULT 0,
    transport        VARBINARY(255)  NOT NULL,
    message_type     VARCHAR(255)    NOT NULL,
    destination      TEXT            NOT NULL,
    content_type     VARCHAR(255),
    tenant           VARCHAR(255),
    ordering_key     VARBINARY(1024),
    headers          LONGBLOB,
    body             LONGBLOB,
    ce_source        TEXT,
    ce_subject       TEXT,
    ce_dataschema    TEXT,
    ce_extensions    LONGBLOB,
    correlation_id   VARCHAR(255),
    causation_id     VARCHAR(255),
    traceparent      VARCHAR(255),
    tracestate       TEXT,
    last_error       TEXT,
    reason           TEXT            NOT NULL,
    PRIMARY KEY (id),
    KEY {=dead_time} (died_at, id),
    KEY {=dead_route} (transport, died_at, id),
    KEY {=dead_key} (lane, key_hash, pos)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS {routes} (
    name             VARBINARY(255)  NOT NULL,
    first_lane       INT             NOT NULL,
    ordered_lanes    INT             NOT NULL,
    unordered_lanes  INT             NOT NULL,
    PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

-- The row that the fence reads. Only acquisition, release and operators write it.
CREATE TABLE IF NOT EXISTS {lanes} (
    lane             INT             NOT NULL,
    route            VARBINARY(255)  NOT NULL,
    is_ordered       SMALLINT        NOT NULL,
    unclean          SMALLINT        NOT NULL DEFAULT 0,
    epoch            BIGINT          NOT NULL DEFAULT 0,
    config           BIGINT          NOT NULL DEFAULT 0,
    owner            BINARY(16),
    PRIMARY KEY (lane)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS {lane_marks} (
    lane             INT             NOT NULL,
    tried_to         BIGINT          NOT NULL DEFAULT 0,
    config_seen      BIGINT          NOT NULL DEFAULT 0,
    PRIMARY KEY (lane)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

-- One window per owner, for all its lanes. routes is a JSON list of names.
CREATE TABLE IF NOT EXISTS {relays} (
    owner            BINARY(16)      NOT NULL,
    expires_at       BIGINT          NOT NULL,
    ended            SMALLINT        NOT NULL DEFAULT 0,
    routes           LONGTEXT        NOT NULL,
    PRIMARY KEY (owner)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS {parked_keys} (
    lane             INT             NOT NULL,
    key_hash         BIGINT          NOT NULL,
    ordering_key     VARBINARY(1024) NOT NULL,
    unparking        SMALLINT        NOT NULL DEFAULT 0,
    parked_by        TEXT            NOT NULL,
    parked_at        BIGINT          NOT NULL,
    why              TEXT            NOT NULL,
    PRIMARY KEY (lane, key_hash, ordering_key)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS {audit} (
    num              BIGINT          NOT NULL AUTO_INCREMENT,
    at               BIGINT          NOT NULL,
    done_by          TEXT            NOT NULL,
    what             VARCHAR(255)    NOT NULL,
    how_many         BIGINT          NOT NULL,
    detail           LONGTEXT,
    PRIMARY KEY (num),
    KEY {=audit_time} (at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

-- A row with a token is a claim, which expires with its lease. repeats counts
-- deliveries of a message that was processed already: the count of rows that an
-- upsert reports depends on the driver's settings.
CREATE TABLE IF NOT EXISTS {inbox} (
    processed_at     BIGINT          NOT NULL,
    expires_at       BIGINT,
    repeats          BIGINT          NOT NULL DEFAULT 0,
    consumer         VARBINARY(255)  NOT NULL,
    message_id       VARBINARY(255)  NOT NULL,
    token            VARBINARY(16),
    PRIMARY KEY (consumer, message_id),
    KEY {=inbox_expiry} (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS {meta} (
    name             VARBINARY(64)   NOT NULL,
    value            VARBINARY(255)  NOT NULL,
    PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

INSERT INTO {meta} (name, value) VALUES ('schema', '1'), ('dispatch', 'lanes');
