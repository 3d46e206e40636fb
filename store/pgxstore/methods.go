package pgxstore

import (
	"context"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

// Migrate brings the tables to this program's version, creating them (and the
// schema) if need be, and adds the routes of Options.Routes that do not exist.
// All of it is one transaction, and many processes may start at once: they
// wait for each other. It needs the right to create tables only where there is
// something to create.
//
// Errors: outbox.ErrSchema when the tables are newer than this program or have
// another dispatch mode, or a route exists with other counts; nothing has
// changed then.
func (s *Store) Migrate(ctx context.Context) error { return s.core.Migrate(ctx) }

// Check reports whether the tables and routes are those that this program
// needs, and reads the routes. It changes nothing. A missing, older or newer
// schema, a missing route and one with other counts are outbox.ErrSchema with
// the remedy in the text.
func (s *Store) Check(ctx context.Context) error { return s.core.Check(ctx) }

// CheckRelay reports whether a relay can work on tables that are there: whether the
// server takes writes, and the role has the rights of a relay. It changes nothing.
// What is missing is outbox.ErrRefused, with the remedy in the text.
func (s *Store) CheckRelay(ctx context.Context) error { return s.core.CheckRelay(ctx) }

// ConcurrentUse implements outbox.Concurrent.
func (s *Store) ConcurrentUse() bool { return true }

// ServerTime implements outbox.ServerClock.
func (s *Store) ServerTime(ctx context.Context) (time.Time, error) { return s.core.ServerTime(ctx) }

// Routes implements outbox.Router. It reads the database.
func (s *Store) Routes(ctx context.Context) ([]outbox.Route, error) { return s.core.Routes(ctx) }

// ReadPending implements outbox.Store. It walks ids and not positions: its cost
// grows with the lanes, and with rows that are not eligible. Lanes that do not
// exist, and those that the store keeps unordered rows in, hold nothing.
func (s *Store) ReadPending(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (n int, err error) {
	return s.core.ReadPending(ctx, req, dst)
}

// TryClaim implements outbox.Store. It is false while the row's lane has a live
// lease: it holds the lane's row and its owner's locked shared until it has
// committed, so that a lane cannot be acquired in between and its rows be sent
// by both (contract C11).
func (s *Store) TryClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
	return s.core.TryClaim(ctx, c, now, expires)
}

// RenewClaim implements outbox.Store.
func (s *Store) RenewClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
	return s.core.RenewClaim(ctx, c, now, expires)
}

// Complete implements outbox.Store.
func (s *Store) Complete(ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
	return s.core.Complete(ctx, c, now)
}

// RecordFailure implements outbox.Store. A keyed row stays where it is, as the
// head of its key; an unordered one waits among the deferred rows.
func (s *Store) RecordFailure(ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error) {
	return s.core.RecordFailure(ctx, c, now, f)
}

// ReleaseClaim implements outbox.Releaser.
func (s *Store) ReleaseClaim(ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
	return s.core.ReleaseClaim(ctx, c, now)
}

// PendingCount implements outbox.Store. It is exact, and reads every pending
// row's index entry or row: about a second for some millions.
func (s *Store) PendingCount(ctx context.Context, now time.Time) (int64, error) {
	return s.core.PendingCount(ctx, now)
}

// OldestPending implements outbox.AgeStore. It looks at the first 128 eligible
// rows of each lane by position, which a row made long before it was enlisted
// can escape.
func (s *Store) OldestPending(ctx context.Context, now time.Time) (created time.Time, ok bool, err error) {
	return s.core.OldestPending(ctx, now)
}

// LaneSession implements outbox.LaneSessioner: it takes a connection out of the
// pool and readies it. Closing the session closes the connection, whose settings
// must not come back to the pool. Behind a transaction pooler it pins nothing.
//
// A pool whose limit leaves no connection for anybody else is
// outbox.ErrInvalidArgument with the limit that is needed.
func (s *Store) LaneSession(ctx context.Context, purpose string) (outbox.LaneSession, error) {
	return s.core.LaneSession(ctx, purpose)
}

// AcquireLanes implements outbox.LaneStore.
func (s *Store) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
	return s.core.AcquireLanes(ctx, r)
}

// ReadLanes implements outbox.LaneStore with one statement. Each key of a read
// that names keys counts as a read of its own; fewer slots than reads, a lane
// that does not exist and an empty key are outbox.ErrInvalidArgument.
func (s *Store) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (n int, err error) {
	return s.core.ReadLanes(ctx, reads, dst)
}

// SweepLanes implements outbox.LaneStore with one statement.
func (s *Store) SweepLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneSpot) (n int, err error) {
	return s.core.SweepLanes(ctx, reads, dst)
}

// SettleLanes implements outbox.LaneStore. A row that was moved aside while its
// message was in flight, because its key was parked, is found there. Parking a
// row without a key makes it a dead letter.
//
// Accepted rows alone cost one round trip, with a statement per 1,000; other
// outcomes, and rows to be counted for dead letters, take a transaction of some
// more.
func (s *Store) SettleLanes(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
	return s.core.SettleLanes(ctx, r)
}

// PromoteLanes implements outbox.LaneStore. At most 1,024 rows are moved in one
// call. A row whose id is hot already is dropped from the deferred ones.
func (s *Store) PromoteLanes(ctx context.Context, leases []outbox.LaneLease, dst []outbox.LaneRow) (n int, nextDue time.Time, err error) {
	return s.core.PromoteLanes(ctx, leases, dst)
}

// MoveParked implements outbox.LaneParker.
func (s *Store) MoveParked(ctx context.Context, leases []outbox.LaneLease, limit int) (moved int, done []outbox.ParkedKey, err error) {
	return s.core.MoveParked(ctx, leases, limit)
}

// ParkKey implements outbox.Parker.
func (s *Store) ParkKey(ctx context.Context, k outbox.ParkedKey) (bool, error) {
	return s.core.ParkKey(ctx, k)
}

// UnparkKey implements outbox.Parker. A key that is on its way back already is
// not parked.
func (s *Store) UnparkKey(ctx context.Context, route string, key []byte, by string) (bool, error) {
	return s.core.UnparkKey(ctx, route, key, by)
}

// ParkedKeys implements outbox.Parker. Keys come by lane and key.
func (s *Store) ParkedKeys(ctx context.Context, lanes []outbox.Lane) ([]outbox.ParkedKey, error) {
	return s.core.ParkedKeys(ctx, lanes)
}

// Confirmed implements outbox.Confirmer with one statement.
func (s *Store) Confirmed(ctx context.Context, lanes []outbox.Lane) (bool, error) {
	return s.core.Confirmed(ctx, lanes)
}

// ListDead implements outbox.DeadLetters. A route that does not exist is
// outbox.ErrUnknownRoute.
func (s *Store) ListDead(ctx context.Context, q outbox.DeadQuery, dst []outbox.DeadLetter) (n int, err error) {
	return s.core.ListDead(ctx, q, dst)
}

// CountDead implements outbox.DeadLetters. It is exact.
func (s *Store) CountDead(ctx context.Context, route string) (int64, error) {
	return s.core.CountDead(ctx, route)
}

// ReplayDead implements outbox.DeadLetters. The rows come back without an
// attempt, an error or a retry time. All of it is one transaction.
func (s *Store) ReplayDead(ctx context.Context, by string, ids ...outbox.ID) (outbox.ReplayResult, error) {
	return s.core.ReplayDead(ctx, by, ids...)
}

// DiscardDead implements outbox.DeadLetters.
func (s *Store) DiscardDead(ctx context.Context, by string, ids ...outbox.ID) (int, error) {
	return s.core.DiscardDead(ctx, by, ids...)
}

// Inspect implements outbox.Inspector. All counts are exact: their cost grows
// with the backlog, about a second for some millions of rows. The parts are
// read one after another and need not fit together to the row.
func (s *Store) Inspect(ctx context.Context, now time.Time) (outbox.Overview, error) {
	return s.core.Inspect(ctx, now)
}

// Purge implements inbox.Store. It deletes in transactions of at most 1,024
// records, so that it holds no lock for long.
func (s *Store) Purge(ctx context.Context, now time.Time, limit int) (deleted int, err error) {
	return s.core.Purge(ctx, now, limit)
}

// ClaimMessage implements inbox.ClaimStore.
func (s *Store) ClaimMessage(ctx context.Context, r inbox.Record, t inbox.Token) (inbox.State, error) {
	return s.core.ClaimMessage(ctx, r, t)
}

// RenewMessage implements inbox.ClaimStore.
func (s *Store) RenewMessage(ctx context.Context, r inbox.Record, t inbox.Token) (bool, error) {
	return s.core.RenewMessage(ctx, r, t)
}

// CompleteMessage implements inbox.ClaimStore.
func (s *Store) CompleteMessage(ctx context.Context, r inbox.Record, t inbox.Token) (bool, error) {
	return s.core.CompleteMessage(ctx, r, t)
}

// ReleaseMessage implements inbox.ClaimStore.
func (s *Store) ReleaseMessage(ctx context.Context, consumer, messageID string, t inbox.Token) (bool, error) {
	return s.core.ReleaseMessage(ctx, consumer, messageID, t)
}
