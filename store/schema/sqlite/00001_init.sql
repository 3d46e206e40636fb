-- +goose Up
-- Postrider, SQLite, version 1. Instants are microseconds since 1970 UTC.
--
-- A column takes values of any type, unless a CHECK asks; tables that are STRICT need
-- SQLite 3.37. What other programs write is asked where another type would do harm: a
-- date that is text is later than any number, a key that is text equals no key in bytes,
-- and what cannot be read as a number, or as bytes, keeps its lane from being read.

-- Ready rows. pos orders a lane and is drawn in the INSERT; AUTOINCREMENT keeps a
-- position from being used twice.
CREATE TABLE {outbox} (
    pos              INTEGER  PRIMARY KEY AUTOINCREMENT CHECK (pos > 0),
    key_hash         INTEGER  CHECK (typeof(key_hash) IN ('integer', 'null')),
    created_at       INTEGER  NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)) CHECK (typeof(created_at) = 'integer'),
    deliver_at       INTEGER  CHECK (typeof(deliver_at) IN ('integer', 'null')),
    ce_time          INTEGER  CHECK (typeof(ce_time) IN ('integer', 'null')),
    retry_at         INTEGER  CHECK (typeof(retry_at) IN ('integer', 'null')),
    first_failed_at  INTEGER  CHECK (typeof(first_failed_at) IN ('integer', 'null')),
    claim_until      INTEGER  CHECK (typeof(claim_until) IN ('integer', 'null')),
    id               BLOB     NOT NULL CHECK (typeof(id) = 'blob' AND length(id) = 16 AND id <> zeroblob(16)),
    lane             INTEGER  NOT NULL CHECK (typeof(lane) = 'integer'),
    attempts         INTEGER  NOT NULL DEFAULT 0 CHECK (typeof(attempts) = 'integer'),
    envelope         INTEGER  NOT NULL DEFAULT 0 CHECK (typeof(envelope) = 'integer'),
    transport        TEXT     NOT NULL CHECK (typeof(transport) = 'text'),
    message_type     TEXT     NOT NULL,
    destination      TEXT     NOT NULL,
    content_type     TEXT,
    tenant           TEXT,
    ordering_key     BLOB     CHECK (typeof(ordering_key) IN ('blob', 'null')),
    headers          BLOB     CHECK (typeof(headers) IN ('blob', 'null')),
    body             BLOB     CHECK (typeof(body) IN ('blob', 'null')),
    ce_source        TEXT,
    ce_subject       TEXT,
    ce_dataschema    TEXT,
    ce_extensions    BLOB     CHECK (typeof(ce_extensions) IN ('blob', 'null')),
    correlation_id   TEXT,
    causation_id     TEXT,
    traceparent      TEXT,
    tracestate       TEXT,
    last_error       TEXT,
    claim_token      BLOB
);

-- A settle deletes from each index, so there are few. An index ends with the
-- rowid, which is pos: this one is (lane, pos).
CREATE INDEX {=outbox_lane} ON {outbox} (lane);

CREATE UNIQUE INDEX {=outbox_id} ON {outbox} (id, lane);

-- (lane, key_hash, pos).
CREATE INDEX {=outbox_key} ON {outbox} (lane, key_hash) WHERE key_hash IS NOT NULL;

-- Scheduled rows, unordered rows that wait for a retry, and rows of parked keys
-- (due_at NULL).
CREATE TABLE {deferred} (
    pos              INTEGER  NOT NULL DEFAULT 0 CHECK (typeof(pos) = 'integer'),
    key_hash         INTEGER  CHECK (typeof(key_hash) IN ('integer', 'null')),
    due_at           INTEGER  CHECK (typeof(due_at) IN ('integer', 'null')),
    created_at       INTEGER  NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)) CHECK (typeof(created_at) = 'integer'),
    deliver_at       INTEGER  CHECK (typeof(deliver_at) IN ('integer', 'null')),
    ce_time          INTEGER  CHECK (typeof(ce_time) IN ('integer', 'null')),
    retry_at         INTEGER  CHECK (typeof(retry_at) IN ('integer', 'null')),
    first_failed_at  INTEGER  CHECK (typeof(first_failed_at) IN ('integer', 'null')),
    claim_until      INTEGER  CHECK (typeof(claim_until) IN ('integer', 'null')),
    id               BLOB     NOT NULL CHECK (typeof(id) = 'blob' AND length(id) = 16 AND id <> zeroblob(16)),
    lane             INTEGER  NOT NULL CHECK (typeof(lane) = 'integer'),
    attempts         INTEGER  NOT NULL DEFAULT 0 CHECK (typeof(attempts) = 'integer'),
    envelope         INTEGER  NOT NULL DEFAULT 0 CHECK (typeof(envelope) = 'integer'),
    transport        TEXT     NOT NULL CHECK (typeof(transport) = 'text'),
    message_type     TEXT     NOT NULL,
    destination      TEXT     NOT NULL,
    content_type     TEXT,
    tenant           TEXT,
    ordering_key     BLOB     CHECK (typeof(ordering_key) IN ('blob', 'null')),
    headers          BLOB     CHECK (typeof(headers) IN ('blob', 'null')),
    body             BLOB     CHECK (typeof(body) IN ('blob', 'null')),
    ce_source        TEXT,
    ce_subject       TEXT,
    ce_dataschema    TEXT,
    ce_extensions    BLOB     CHECK (typeof(ce_extensions) IN ('blob', 'null')),
    correlation_id   TEXT,
    causation_id     TEXT,
    traceparent      TEXT,
    tracestate       TEXT,
    last_error       TEXT,
    claim_token      BLOB,
    CONSTRAINT {=deferred_pkey} PRIMARY KEY (lane, id)
);

CREATE INDEX {=deferred_by_id} ON {deferred} (id);

CREATE INDEX {=deferred_due} ON {deferred} (lane, due_at, pos) WHERE due_at IS NOT NULL;

CREATE INDEX {=deferred_parked} ON {deferred} (lane, key_hash, pos) WHERE due_at IS NULL;

-- later_out counts the delivered messages of the row's key that lie behind it.
CREATE TABLE {dead} (
    pos              INTEGER  NOT NULL,
    key_hash         INTEGER,
    died_at          INTEGER  NOT NULL,
    later_out        INTEGER  NOT NULL DEFAULT 0,
    created_at       INTEGER  NOT NULL,
    deliver_at       INTEGER,
    ce_time          INTEGER,
    first_failed_at  INTEGER,
    id               BLOB     NOT NULL,
    lane             INTEGER  NOT NULL,
    attempts         INTEGER  NOT NULL DEFAULT 0,
    envelope         INTEGER  NOT NULL DEFAULT 0,
    transport        TEXT     NOT NULL,
    message_type     TEXT     NOT NULL,
    destination      TEXT     NOT NULL,
    content_type     TEXT,
    tenant           TEXT,
    ordering_key     BLOB,
    headers          BLOB,
    body             BLOB,
    ce_source        TEXT,
    ce_subject       TEXT,
    ce_dataschema    TEXT,
    ce_extensions    BLOB,
    correlation_id   TEXT,
    causation_id     TEXT,
    traceparent      TEXT,
    tracestate       TEXT,
    last_error       TEXT,
    reason           TEXT     NOT NULL,
    CONSTRAINT {=dead_pkey} PRIMARY KEY (id)
);

CREATE INDEX {=dead_time} ON {dead} (died_at, id);

CREATE INDEX {=dead_route} ON {dead} (transport, died_at, id);

CREATE INDEX {=dead_key} ON {dead} (lane, key_hash, pos) WHERE key_hash IS NOT NULL;

CREATE TABLE {routes} (
    name             TEXT     NOT NULL,
    first_lane       INTEGER  NOT NULL,
    ordered_lanes    INTEGER  NOT NULL,
    unordered_lanes  INTEGER  NOT NULL,
    CONSTRAINT {=routes_pkey} PRIMARY KEY (name)
);

-- The row that the fence reads. Only acquisition, release and operators write it.
CREATE TABLE {lanes} (
    lane             INTEGER  NOT NULL,
    route            TEXT     NOT NULL,
    is_ordered       INTEGER  NOT NULL,
    unclean          INTEGER  NOT NULL DEFAULT 0,
    epoch            INTEGER  NOT NULL DEFAULT 0,
    config           INTEGER  NOT NULL DEFAULT 0,
    owner            BLOB,
    CONSTRAINT {=lanes_pkey} PRIMARY KEY (lane)
);

CREATE TABLE {lane_marks} (
    lane             INTEGER  NOT NULL,
    tried_to         INTEGER  NOT NULL DEFAULT 0,
    config_seen      INTEGER  NOT NULL DEFAULT 0,
    CONSTRAINT {=lane_marks_pkey} PRIMARY KEY (lane)
);

-- One window per owner, for all its lanes. routes is a JSON list of names.
CREATE TABLE {relays} (
    owner            BLOB     NOT NULL,
    expires_at       INTEGER  NOT NULL,
    ended            INTEGER  NOT NULL DEFAULT 0,
    routes           TEXT     NOT NULL,
    CONSTRAINT {=relays_pkey} PRIMARY KEY (owner)
);

CREATE TABLE {parked_keys} (
    lane             INTEGER  NOT NULL,
    key_hash         INTEGER  NOT NULL,
    ordering_key     BLOB     NOT NULL,
    unparking        INTEGER  NOT NULL DEFAULT 0,
    parked_by        TEXT     NOT NULL,
    parked_at        INTEGER  NOT NULL,
    why              TEXT     NOT NULL,
    CONSTRAINT {=parked_keys_pkey} PRIMARY KEY (lane, key_hash, ordering_key)
);

CREATE TABLE {audit} (
    num              INTEGER  PRIMARY KEY AUTOINCREMENT,
    at               INTEGER  NOT NULL,
    done_by          TEXT     NOT NULL,
    what             TEXT     NOT NULL,
    how_many         INTEGER  NOT NULL,
    detail           TEXT
);

CREATE INDEX {=audit_time} ON {audit} (at);

-- A row with a token is a claim, which expires with its lease.
CREATE TABLE {inbox} (
    processed_at     INTEGER  NOT NULL CHECK (typeof(processed_at) = 'integer'),
    expires_at       INTEGER  CHECK (typeof(expires_at) IN ('integer', 'null')),
    consumer         TEXT     NOT NULL CHECK (typeof(consumer) = 'text'),
    message_id       TEXT     NOT NULL CHECK (typeof(message_id) = 'text'),
    token            BLOB,
    CONSTRAINT {=inbox_pkey} PRIMARY KEY (consumer, message_id)
);

CREATE INDEX {=inbox_expiry} ON {inbox} (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE {meta} (
    name             TEXT     NOT NULL,
    value            TEXT     NOT NULL,
    CONSTRAINT {=meta_pkey} PRIMARY KEY (name)
);

INSERT INTO {meta} (name, value) VALUES ('schema', '1'), ('dispatch', 'lanes');
