-- +goose Up
-- Postrider, PostgreSQL, version 1. Instants are microseconds since 1970 UTC.

CREATE SEQUENCE {outbox_pos} AS bigint CACHE 1;

-- Ready rows. pos orders a lane and is drawn in the INSERT: CACHE must stay 1.
CREATE TABLE {outbox} (
    pos              bigint   NOT NULL DEFAULT nextval({'outbox_pos}::regclass) CHECK (pos > 0),
    key_hash         bigint,
    created_at       bigint   NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    deliver_at       bigint,
    ce_time          bigint,
    retry_at         bigint,
    first_failed_at  bigint,
    claim_until      bigint,
    id               uuid     NOT NULL CHECK (id <> '00000000-0000-0000-0000-000000000000'),
    lane             integer  NOT NULL,
    attempts         integer  NOT NULL DEFAULT 0,
    envelope         smallint NOT NULL DEFAULT 0,
    transport        text     NOT NULL,
    message_type     text     NOT NULL,
    destination      text     NOT NULL,
    content_type     text,
    tenant           text,
    ordering_key     bytea,
    headers          bytea,
    body             bytea,
    ce_source        text,
    ce_subject       text,
    ce_dataschema    text,
    ce_extensions    bytea,
    correlation_id   text,
    causation_id     text,
    traceparent      text,
    tracestate       text,
    last_error       text,
    claim_token      bytea,
    CONSTRAINT {=outbox_pkey} PRIMARY KEY (lane, pos),
    CONSTRAINT {=outbox_id} UNIQUE (lane, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- An order that no other index has: or the planner might walk the lane for a key.
CREATE INDEX {=outbox_key} ON {outbox} (lane, key_hash, (pos + 0)) WHERE key_hash IS NOT NULL;

-- Scheduled rows, unordered rows that wait for a retry, and rows of parked keys
-- (due_at NULL).
CREATE TABLE {deferred} (
    pos              bigint   NOT NULL DEFAULT nextval({'outbox_pos}::regclass),
    key_hash         bigint,
    due_at           bigint,
    created_at       bigint   NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    deliver_at       bigint,
    ce_time          bigint,
    retry_at         bigint,
    first_failed_at  bigint,
    claim_until      bigint,
    id               uuid     NOT NULL CHECK (id <> '00000000-0000-0000-0000-000000000000'),
    lane             integer  NOT NULL,
    attempts         integer  NOT NULL DEFAULT 0,
    envelope         smallint NOT NULL DEFAULT 0,
    transport        text     NOT NULL,
    message_type     text     NOT NULL,
    destination      text     NOT NULL,
    content_type     text,
    tenant           text,
    ordering_key     bytea,
    headers          bytea,
    body             bytea,
    ce_source        text,
    ce_subject       text,
    ce_dataschema    text,
    ce_extensions    bytea,
    correlation_id   text,
    causation_id     text,
    traceparent      text,
    tracestate       text,
    last_error       text,
    claim_token      bytea,
    CONSTRAINT {=deferred_pkey} PRIMARY KEY (lane, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX {=deferred_due} ON {deferred} (lane, due_at, pos) WHERE due_at IS NOT NULL;

CREATE INDEX {=deferred_parked} ON {deferred} (lane, key_hash, pos) WHERE due_at IS NULL;

-- An id that is pending in one of the lanes; NULL for none, and for no lanes. Of
-- several ids, drawn one after the other as they usually are, one look at the
-- range from the first to the last is nearly always enough.
--
-- Producers cache the plan of their INSERT; made while the table was empty, it
-- would read the whole table for every row of a later backlog. Here the plan is
-- always that of the index, whatever the session's settings are.
-- +goose StatementBegin
CREATE FUNCTION {pending_id}(lanes integer[], ids uuid[]) RETURNS uuid
LANGUAGE plpgsql STABLE STRICT SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE lo uuid; hi uuid;
BEGIN
IF cardinality(ids) > 1 THEN
  lo := (SELECT u.id FROM unnest(ids) AS u(id) ORDER BY u.id LIMIT 1);
  hi := (SELECT u.id FROM unnest(ids) AS u(id) ORDER BY u.id DESC LIMIT 1);
  IF (SELECT 1 FROM {outbox} p WHERE p.lane = ANY (lanes) AND p.id >= lo AND p.id <= hi ORDER BY p.lane, p.id LIMIT 1) IS NULL
   AND (SELECT 1 FROM {deferred} p WHERE p.lane = ANY (lanes) AND p.id >= lo AND p.id <= hi ORDER BY p.lane, p.id LIMIT 1) IS NULL THEN
    RETURN NULL;
  END IF;
END IF;
RETURN (SELECT u.id FROM unnest(ids) AS u(id) CROSS JOIN LATERAL (
    (SELECT 1 FROM {outbox} p WHERE p.lane = ANY (lanes) AND p.id >= u.id AND p.id <= u.id ORDER BY p.lane, p.id LIMIT 1)
    UNION ALL
    (SELECT 1 FROM {deferred} p WHERE p.lane = ANY (lanes) AND p.id >= u.id AND p.id <= u.id ORDER BY p.lane, p.id LIMIT 1)) x
  LIMIT 1); END $$;
-- +goose StatementEnd

-- later_out counts the delivered messages of the row's key that lie behind it.
CREATE TABLE {dead} (
    pos              bigint   NOT NULL,
    key_hash         bigint,
    died_at          bigint   NOT NULL,
    later_out        bigint   NOT NULL DEFAULT 0,
    created_at       bigint   NOT NULL,
    deliver_at       bigint,
    ce_time          bigint,
    first_failed_at  bigint,
    id               uuid     NOT NULL,
    lane             integer  NOT NULL,
    attempts         integer  NOT NULL DEFAULT 0,
    envelope         smallint NOT NULL DEFAULT 0,
    transport        text     NOT NULL,
    message_type     text     NOT NULL,
    destination      text     NOT NULL,
    content_type     text,
    tenant           text,
    ordering_key     bytea,
    headers          bytea,
    body             bytea,
    ce_source        text,
    ce_subject       text,
    ce_dataschema    text,
    ce_extensions    bytea,
    correlation_id   text,
    causation_id     text,
    traceparent      text,
    tracestate       text,
    last_error       text,
    reason           text     NOT NULL,
    CONSTRAINT {=dead_pkey} PRIMARY KEY (id)
);

CREATE INDEX {=dead_time} ON {dead} (died_at, id);

CREATE INDEX {=dead_route} ON {dead} (transport, died_at, id);

CREATE INDEX {=dead_key} ON {dead} (lane, key_hash, pos) WHERE key_hash IS NOT NULL;

CREATE TABLE {routes} (
    name             text     NOT NULL,
    first_lane       integer  NOT NULL,
    ordered_lanes    integer  NOT NULL,
    unordered_lanes  integer  NOT NULL,
    CONSTRAINT {=routes_pkey} PRIMARY KEY (name)
);

-- The row that the fence reads. Only acquisition, release and operators write it.
CREATE TABLE {lanes} (
    lane             integer  NOT NULL,
    route            text     NOT NULL,
    is_ordered       smallint NOT NULL,
    unclean          smallint NOT NULL DEFAULT 0,
    epoch            bigint   NOT NULL DEFAULT 0,
    config           bigint   NOT NULL DEFAULT 0,
    owner            uuid,
    CONSTRAINT {=lanes_pkey} PRIMARY KEY (lane)
) WITH (fillfactor = 50);

CREATE TABLE {lane_marks} (
    lane             integer  NOT NULL,
    tried_to         bigint   NOT NULL DEFAULT 0,
    config_seen      bigint   NOT NULL DEFAULT 0,
    CONSTRAINT {=lane_marks_pkey} PRIMARY KEY (lane)
) WITH (fillfactor = 50);

-- One window per owner, for all its lanes. routes is a JSON list of names.
CREATE TABLE {relays} (
    owner            uuid     NOT NULL,
    expires_at       bigint   NOT NULL,
    ended            smallint NOT NULL DEFAULT 0,
    routes           text     NOT NULL,
    CONSTRAINT {=relays_pkey} PRIMARY KEY (owner)
) WITH (fillfactor = 50);

CREATE TABLE {parked_keys} (
    lane             integer  NOT NULL,
    key_hash         bigint   NOT NULL,
    ordering_key     bytea    NOT NULL,
    unparking        smallint NOT NULL DEFAULT 0,
    parked_by        text     NOT NULL,
    parked_at        bigint   NOT NULL,
    why              text     NOT NULL,
    CONSTRAINT {=parked_keys_pkey} PRIMARY KEY (lane, key_hash, ordering_key)
);

CREATE TABLE {audit} (
    num              bigint   GENERATED BY DEFAULT AS IDENTITY,
    at               bigint   NOT NULL,
    done_by          text     NOT NULL,
    what             text     NOT NULL,
    how_many         bigint   NOT NULL,
    detail           text,
    CONSTRAINT {=audit_pkey} PRIMARY KEY (num)
);

CREATE INDEX {=audit_time} ON {audit} (at);

-- A row with a token is a claim, which expires with its lease.
CREATE TABLE {inbox} (
    processed_at     bigint   NOT NULL,
    expires_at       bigint,
    consumer         text     NOT NULL,
    message_id       text     NOT NULL,
    token            bytea,
    CONSTRAINT {=inbox_pkey} PRIMARY KEY (consumer, message_id)
);

CREATE INDEX {=inbox_expiry} ON {inbox} (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE {meta} (
    name             text     NOT NULL,
    value            text     NOT NULL,
    CONSTRAINT {=meta_pkey} PRIMARY KEY (name)
);

INSERT INTO {meta} (name, value) VALUES ('schema', '1'), ('dispatch', 'lanes');
