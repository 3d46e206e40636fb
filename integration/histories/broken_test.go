package histories_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// broken is a store that breaks one rule: it lets the real one answer and then
// reaches into the tables behind its back.
type broken struct {
	subject
	g            *rig
	tryClaim     func(b *broken, ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error)
	renewClaim   func(b *broken, ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error)
	complete     func(b *broken, ctx context.Context, c outbox.Claim, now time.Time) (bool, error)
	fail         func(b *broken, ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error)
	acquireLanes func(b *broken, ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error)
	settleLanes  func(b *broken, ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error)
}

func (b *broken) TryClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
	if b.tryClaim != nil {
		return b.tryClaim(b, ctx, c, now, expires)
	}
	return b.subject.TryClaim(ctx, c, now, expires)
}

func (b *broken) RenewClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
	if b.renewClaim != nil {
		return b.renewClaim(b, ctx, c, now, expires)
	}
	return b.subject.RenewClaim(ctx, c, now, expires)
}

func (b *broken) Complete(ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
	if b.complete != nil {
		return b.complete(b, ctx, c, now)
	}
	return b.subject.Complete(ctx, c, now)
}

func (b *broken) RecordFailure(ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error) {
	if b.fail != nil {
		return b.fail(b, ctx, c, now, f)
	}
	return b.subject.RecordFailure(ctx, c, now, f)
}

func (b *broken) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
	if b.acquireLanes != nil {
		return b.acquireLanes(b, ctx, r)
	}
	return b.subject.AcquireLanes(ctx, r)
}

func (b *broken) SettleLanes(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
	if b.settleLanes != nil {
		return b.settleLanes(b, ctx, r)
	}
	return b.subject.SettleLanes(ctx, r)
}

// id is how the engine's driver takes an id.
func (b *broken) id(id outbox.ID) any {
	if b.g.e.dialect == sqlstore.PostgreSQL {
		return id.String()
	}
	return id[:]
}

// change runs a statement on both tables of pending rows and tells whether it
// changed one.
func (b *broken) change(ctx context.Context, text string, args ...any) (bool, error) {
	changed := int64(0)
	for _, table := range []string{"outbox", "deferred"} {
		n, err := b.exec(ctx, fmt.Sprintf(text, "postrider_"+table), args...)
		if err != nil {
			return false, err
		}
		changed += n
	}
	return changed > 0, nil
}

func (b *broken) exec(ctx context.Context, text string, args ...any) (int64, error) {
	text, args = b.g.e.statement(text, args)
	opts := &sql.TxOptions{}
	if b.g.e.mysql() {
		opts.Isolation = sql.LevelReadCommitted // or all rows stay locked
	}
	tx, err := b.g.db.BeginTx(ctx, opts)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	res, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return n, errors.Join(err, tx.Commit())
}

// row is the one row of a query.
func (b *broken) row(ctx context.Context, text string, args ...any) *sql.Row {
	text, args = b.g.e.statement(text, args)
	return b.g.db.QueryRowContext(ctx, text, args...)
}

// claimWhere claims a row that the store refused, where the condition holds.
func claimWhere(condition string) func(*broken, context.Context, outbox.Claim, time.Time, time.Time) (bool, error) {
	return func(b *broken, ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
		ok, err := b.subject.TryClaim(ctx, c, now, expires)
		if ok || err != nil {
			return ok, err
		}
		return b.change(ctx, `UPDATE %s SET claim_token = $1, claim_until = $2 WHERE id = $3 AND (retry_at IS NULL OR retry_at <= $4) AND `+condition,
			c.Token[:], expires.UnixMicro(), b.id(c.ID), now.UnixMicro())
	}
}

// breach is a rule that a store breaks, and where that is looked for.
type breach struct {
	name  string
	among workload
	store broken
}

// workload is a plan and how its history is split.
type workload struct {
	plan  func(p *planner) plan
	split func(*rig) []*part
}

var (
	onClaims  = workload{func(p *planner) plan { return p.claims(8, 96) }, (*rig).byRow}
	onDense   = workload{func(p *planner) plan { return p.leased(dense) }, (*rig).byLane}
	onExpired = workload{func(p *planner) plan { return p.leased(expiring) }, (*rig).byLane}
)

var breaches = []breach{
	{"a claim ignores a live one", onClaims, broken{tryClaim: claimWhere("true")}},
	{"an expired claim is renewed", onClaims, broken{
		renewClaim: func(b *broken, ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
			ok, err := b.subject.RenewClaim(ctx, c, now, expires)
			if ok || err != nil {
				return ok, err
			}
			return b.change(ctx, `UPDATE %s SET claim_until = $1 WHERE id = $2 AND claim_token = $3`, expires.UnixMicro(), b.id(c.ID), c.Token[:])
		}}},
	{"a renewal shortens", onClaims, broken{
		renewClaim: func(b *broken, ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
			ok, err := b.subject.RenewClaim(ctx, c, now, expires)
			if !ok || err != nil {
				return ok, err
			}
			_, err = b.change(ctx, `UPDATE %s SET claim_until = $1 WHERE id = $2 AND claim_token = $3`, expires.UnixMicro(), b.id(c.ID), c.Token[:])
			return ok, err
		}}},
	{"a row is completed after its claim was taken over", onClaims, broken{
		complete: func(b *broken, ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
			ok, err := b.subject.Complete(ctx, c, now)
			if ok || err != nil {
				return ok, err
			}
			return b.change(ctx, `DELETE FROM %s WHERE id = $1`, b.id(c.ID))
		}}},
	{"a completed row stays", onClaims, broken{
		complete: func(b *broken, ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
			return b.subject.RenewClaim(ctx, c, now, now.Add(time.Millisecond))
		}}},
	{"a row fails after its claim was taken over", onClaims, broken{
		fail: func(b *broken, ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error) {
			ok, err := b.subject.RecordFailure(ctx, c, now, f)
			if ok || err != nil {
				return ok, err
			}
			return b.change(ctx, `UPDATE %s SET attempts = attempts + 1, last_error = $1, claim_token = NULL, claim_until = NULL WHERE id = $2`, f.Reason, b.id(c.ID))
		}}},
	{"a failure counts twice", onClaims, broken{
		fail: func(b *broken, ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error) {
			ok, err := b.subject.RecordFailure(ctx, c, now, f)
			if ok && err == nil {
				_, err = b.change(ctx, `UPDATE %s SET attempts = attempts + 1 WHERE id = $1`, b.id(c.ID))
			}
			return ok, err
		}}},
	{"a failure is not counted", onClaims, broken{
		fail: func(b *broken, ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error) {
			return b.subject.(outbox.Releaser).ReleaseClaim(ctx, c, now)
		}}},
	{"a claim ignores the lane's lease", onDense, broken{tryClaim: claimWhere("(claim_until IS NULL OR claim_until <= $4)")}},
	{"a lane has two owners", onDense, broken{
		acquireLanes: func(b *broken, ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			g, err := b.subject.AcquireLanes(ctx, r)
			if err != nil || r.Want == 0 || len(g.Leases) == 0 {
				return g, err
			}
			lane := b.g.route.First
			for _, l := range g.Leases {
				if l.Lane == lane {
					return g, nil
				}
			}
			if _, err := b.exec(ctx, `UPDATE postrider_lanes SET owner = $1, epoch = epoch + 1, unclean = 0 WHERE lane = $2`, b.id(r.Owner), int64(lane)); err != nil {
				return g, err
			}
			l := g.Leases[0]
			l.Lane, l.Unclean = lane, false
			err = b.row(ctx, `SELECT l.epoch, m.tried_to FROM postrider_lanes l JOIN postrider_lane_marks m ON m.lane = l.lane WHERE l.lane = $1`, int64(lane)).Scan(&l.Epoch, &l.TriedTo)
			g.Leases = append(g.Leases, l)
			return g, err
		}}},
	{"the epoch stays", onDense, broken{
		acquireLanes: func(b *broken, ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			before := map[outbox.Lane]bool{}
			if g, err := b.subject.AcquireLanes(ctx, outbox.LaneRequest{Owner: r.Owner, Routes: r.Routes, TTL: r.TTL}); err == nil {
				for _, l := range g.Leases {
					before[l.Lane] = true
				}
			}
			g, err := b.subject.AcquireLanes(ctx, r)
			for i, l := range g.Leases {
				if !before[l.Lane] && l.Epoch > 1 {
					g.Leases[i].Epoch--
					if _, err := b.exec(ctx, `UPDATE postrider_lanes SET epoch = epoch - 1 WHERE lane = $1`, int64(l.Lane)); err != nil {
						return g, err
					}
				}
			}
			return g, err
		}}},
	{"a stale epoch settles", onDense, broken{
		settleLanes: func(b *broken, ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			if len(r.Settlements) > 0 {
				lane := r.Settlements[0].Lane
				var epoch int64
				if err := b.row(ctx, `SELECT owner, epoch FROM postrider_lanes WHERE lane = $1 AND owner IS NOT NULL`, int64(lane)).Scan(&r.Owner, &epoch); err == nil {
					for i := range r.Settlements {
						r.Settlements[i].Epoch = epoch
					}
				}
			}
			return b.subject.SettleLanes(ctx, r)
		}}},
	{"a settlement counts its attempt twice", onDense, broken{
		settleLanes: func(b *broken, ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			res, err := b.subject.SettleLanes(ctx, r)
			for i, t := range r.Settlements {
				if err == nil && res[i] == outbox.Settled && t.Outcome == outbox.SettleFailed && t.Attempt {
					_, err = b.change(ctx, `UPDATE %s SET attempts = attempts + 1 WHERE id = $1`, b.id(t.ID))
				}
			}
			return res, err
		}}},
	{"a repeated settlement counts again", onDense, broken{
		settleLanes: func(b *broken, ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			for i, t := range r.Settlements {
				for _, table := range []string{"outbox", "deferred"} {
					var n int
					if b.row(ctx, `SELECT attempts FROM postrider_`+table+` WHERE id = $1`, b.id(t.ID)).Scan(&n) == nil {
						r.Settlements[i].Attempts = n
					}
				}
			}
			return b.subject.SettleLanes(ctx, r)
		}}},
	{"an ended window is opened again", onExpired, broken{
		acquireLanes: func(b *broken, ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			g, err := b.subject.AcquireLanes(ctx, r)
			if !errors.Is(err, outbox.ErrOwnerEnded) {
				return g, err
			}
			now, err := b.g.store.ServerTime(ctx)
			if err != nil {
				return g, err
			}
			if _, err := b.exec(ctx, `UPDATE postrider_relays SET ended = 0, expires_at = $1 WHERE owner = $2`, now.Add(r.TTL).UnixMicro(), b.id(r.Owner)); err != nil {
				return g, err
			}
			return b.subject.AcquireLanes(ctx, r)
		}}},
}

// The proof can fail: each breach of the contract, on a real engine, leaves a
// history that no order explains.
func TestBreachesAreRejected(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		for _, br := range breaches {
			t.Run(br.name, func(t *testing.T) {
				t.Parallel()
				const tries = 10
				for seed := uint64(1); seed <= tries; seed++ {
					g := newRig(t, e, 3)
					b := br.store
					b.subject, b.g = g.store, g
					g.subject, g.pinned = &b, false
					g.must(g.run(br.among.plan(newPlanner(seed, g.rows, false)), false, seed))
					g.close()
					if p := rejected(br.among.split(g)); p != nil {
						t.Logf("seed %d: %s is rejected", seed, p.name)
						return
					}
				}
				t.Errorf("%d histories of a store in which %s were accepted", tries, br.name)
			})
		}
	})
}
