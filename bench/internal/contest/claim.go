package contest

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
)

// claim is the usual design: claim a batch of 500 with a token, send it, delete
// it by the token.
type claim struct {
	pool    *pgxpool.Pool
	ordered bool
}

// Claim claims in the order of ids, whatever the keys.
func Claim(ctx context.Context, p Place) (Contestant, error) { return newClaim(ctx, p, false) }

// ClaimOrdered keeps the order of a key by claiming a row only when no earlier
// one of its key is there.
func ClaimOrdered(ctx context.Context, p Place) (Contestant, error) { return newClaim(ctx, p, true) }

func newClaim(ctx context.Context, p Place, ordered bool) (Contestant, error) {
	pool, err := p.Pool(ctx, Connections)
	return &claim{pool, ordered}, err
}

func (c *claim) Close() { c.pool.Close() }

func (c *claim) Prepare(ctx context.Context) error {
	_, err := c.pool.Exec(ctx, `CREATE TABLE claim_outbox (
		id uuid PRIMARY KEY, seq bigserial, created_at timestamptz NOT NULL DEFAULT now(), destination text NOT NULL, message_type text NOT NULL,
		ordering_key bytea, body bytea NOT NULL, attempts int NOT NULL DEFAULT 0, last_error text, claim_token uuid, claim_until timestamptz)`)
	if err == nil && c.ordered {
		_, err = c.pool.Exec(ctx, `CREATE INDEX ON claim_outbox (ordering_key, seq); CREATE INDEX ON claim_outbox (seq)`)
	}
	return err
}

func (c *claim) Fill(ctx context.Context, l *Load, from, to int) error {
	n := from - 1
	_, err := c.pool.CopyFrom(ctx, pgx.Identifier{"claim_outbox"}, []string{"id", "destination", "message_type", "ordering_key", "body"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if n++; n >= to {
				return nil, nil
			}
			m := l.Message(n)
			return []any{outbox.NewID(), "bench.events", "bench.v1", m.Key, m.Body}, nil
		}))
	return err
}

func (c *claim) Enqueue(ctx context.Context, tx pgx.Tx, msgs []Message) error {
	var ids []uuid.UUID
	var keys, bodies [][]byte
	for _, m := range msgs {
		ids, keys, bodies = append(ids, outbox.NewID()), append(keys, m.Key), append(bodies, m.Body)
	}
	_, err := tx.Exec(ctx, claimInsert, ids, keys, bodies)
	return err
}

func (c *claim) Write(ctx context.Context, msgs []Message) error {
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return c.Enqueue(ctx, tx, msgs) })
}

func (c *claim) Pending(ctx context.Context) (n int, err error) {
	err = c.pool.QueryRow(ctx, `SELECT count(*) FROM claim_outbox`).Scan(&n)
	return n, err
}

const (
	claimBatch = `WITH c AS (SELECT id FROM claim_outbox WHERE claim_token IS NULL OR claim_until <= now()
		ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED)
	UPDATE claim_outbox o SET claim_token = $1, claim_until = now() + interval '30 s' FROM c WHERE o.id = c.id
	RETURNING o.id, o.created_at, o.destination, o.message_type, o.ordering_key, o.body, o.attempts`
	claimOrdered = `WITH c AS (SELECT id FROM claim_outbox o WHERE (claim_token IS NULL OR claim_until <= now())
		AND NOT EXISTS (SELECT 1 FROM claim_outbox e WHERE e.ordering_key = o.ordering_key AND e.seq < o.seq)
		ORDER BY seq LIMIT 500 FOR UPDATE SKIP LOCKED)
	UPDATE claim_outbox o SET claim_token = $1, claim_until = now() + interval '30 s' FROM c WHERE o.id = c.id
	RETURNING o.id, o.created_at, o.destination, o.message_type, o.ordering_key, o.body, o.attempts`
	claimInsert = `INSERT INTO claim_outbox (id, destination, message_type, ordering_key, body)
	SELECT id, 'bench.events', 'bench.v1', key, body FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) WITH ORDINALITY u(id, key, body, ord) ORDER BY ord`
	claimDelete = `DELETE FROM claim_outbox WHERE id = ANY ($1) AND claim_token = $2`
)

func (c *claim) Deliver(ctx context.Context, p *Publisher) error {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	settings := `SET plan_cache_mode = force_custom_plan; SET jit = off`
	if c.ordered { // else the planner may compare every row of a key with every other
		settings += `; SET enable_hashjoin = off; SET enable_mergejoin = off`
	}
	if _, err := conn.Exec(ctx, settings); err != nil {
		return err
	}
	poll := newPoll()
	for ctx.Err() == nil {
		// The work under way is finished, as by a clean stop.
		n, err := c.round(context.WithoutCancel(ctx), conn, p)
		if err != nil {
			return err
		}
		poll.wait(ctx, n)
	}
	return nil
}

func (c *claim) round(ctx context.Context, conn *pgxpool.Conn, p *Publisher) (int, error) {
	token := uuid.New()
	text := claimBatch
	if c.ordered {
		text = claimOrdered
	}
	rows, err := conn.Query(ctx, text, token)
	if err != nil {
		return 0, err
	}
	var ids []uuid.UUID
	var bodies [][]byte
	for rows.Next() {
		v := rows.RawValues()
		ids = append(ids, uuid.UUID(v[0]))
		bodies = append(bodies, append([]byte(nil), v[5]...))
	}
	if rows.Close(); rows.Err() != nil || len(ids) == 0 {
		return 0, rows.Err()
	}
	// What was refused keeps its claim, which runs out.
	for _, i := range slices.Backward(p.Batch(bodies)) {
		ids = slices.Delete(ids, i, i+1)
	}
	tag, err := conn.Exec(ctx, claimDelete, ids, token)
	if err == nil && int(tag.RowsAffected()) != len(ids) {
		err = errors.New("a claim was lost")
	}
	return len(ids), err
}
