package storetest

import (
	"context"
	"time"

	"github.com/postrider/postrider/outbox"
)

type faultStore struct {
	f *Fault
	s outbox.Store
}

// CommitsInOrder answers as the store does.
func (w faultStore) CommitsInOrder() bool {
	o, ok := w.s.(outbox.CommitOrder)
	return ok && o.CommitsInOrder()
}

// ConcurrentUse answers as the store does; a store that does not declare it
// answers false.
func (w faultStore) ConcurrentUse() bool {
	c, ok := w.s.(outbox.Concurrent)
	return ok && c.ConcurrentUse()
}

func (w faultStore) ReadPending(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error) {
	return call2(w.f, "ReadPending", func() (int, error) { return w.s.ReadPending(ctx, req, dst) })
}

func (w faultStore) TryClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
	return call2(w.f, "TryClaim", func() (bool, error) { return w.s.TryClaim(ctx, c, now, expires) })
}

func (w faultStore) RenewClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
	return call2(w.f, "RenewClaim", func() (bool, error) { return w.s.RenewClaim(ctx, c, now, expires) })
}

func (w faultStore) Complete(ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
	return call2(w.f, "Complete", func() (bool, error) { return w.s.Complete(ctx, c, now) })
}

func (w faultStore) RecordFailure(ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error) {
	return call2(w.f, "RecordFailure", func() (bool, error) { return w.s.RecordFailure(ctx, c, now, f) })
}

func (w faultStore) PendingCount(ctx context.Context, now time.Time) (int64, error) {
	return call2(w.f, "PendingCount", func() (int64, error) { return w.s.PendingCount(ctx, now) })
}

type faultLanes struct {
	f     *Fault
	lanes outbox.LaneStore
}

func (w faultLanes) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
	return call2(w.f, "AcquireLanes", func() (outbox.LaneGrant, error) { return w.lanes.AcquireLanes(ctx, r) })
}

func (w faultLanes) SweepLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneSpot) (int, error) {
	return call2(w.f, "SweepLanes", func() (int, error) { return w.lanes.SweepLanes(ctx, reads, dst) })
}

func (w faultLanes) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
	return call2(w.f, "ReadLanes", func() (int, error) { return w.lanes.ReadLanes(ctx, reads, dst) })
}

func (w faultLanes) SettleLanes(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
	return call2(w.f, "SettleLanes", func() ([]outbox.SettleResult, error) { return w.lanes.SettleLanes(ctx, r) })
}

func (w faultLanes) PromoteLanes(ctx context.Context, leases []outbox.LaneLease, dst []outbox.LaneRow) (n int, next time.Time, err error) {
	n, err = call2(w.f, "PromoteLanes", func() (n int, err error) {
		n, next, err = w.lanes.PromoteLanes(ctx, leases, dst)
		return n, err
	})
	if err != nil {
		next = time.Time{}
	}
	return n, next, err
}

type faultSessions struct {
	f        *Fault
	sessions outbox.LaneSessioner
}

func (w faultSessions) LaneSession(ctx context.Context, purpose string) (s outbox.LaneSession, err error) {
	err = w.f.call("LaneSession", func() (err error) {
		s, err = w.sessions.LaneSession(ctx, purpose)
		return err
	})
	if err != nil {
		if s != nil {
			_ = s.Close() // the caller has nothing to close
		}
		return nil, err
	}
	return faultSession{faultLanes{w.f, s}, s}, nil
}

type faultSession struct {
	faultLanes
	session outbox.LaneSession
}

func (w faultSession) Close() error { return w.f.call("Close", w.session.Close) }

type faultOperator struct {
	f      *Fault
	dead   outbox.DeadLetters
	parker outbox.Parker
	mover  outbox.LaneParker
	conf   outbox.Confirmer
	insp   outbox.Inspector
}

func (w faultOperator) ListDead(ctx context.Context, q outbox.DeadQuery, dst []outbox.DeadLetter) (int, error) {
	return call2(w.f, "ListDead", func() (int, error) { return w.dead.ListDead(ctx, q, dst) })
}

func (w faultOperator) CountDead(ctx context.Context, route string) (int64, error) {
	return call2(w.f, "CountDead", func() (int64, error) { return w.dead.CountDead(ctx, route) })
}

func (w faultOperator) ReplayDead(ctx context.Context, by string, ids ...outbox.ID) (outbox.ReplayResult, error) {
	return call2(w.f, "ReplayDead", func() (outbox.ReplayResult, error) { return w.dead.ReplayDead(ctx, by, ids...) })
}

func (w faultOperator) DiscardDead(ctx context.Context, by string, ids ...outbox.ID) (int, error) {
	return call2(w.f, "DiscardDead", func() (int, error) { return w.dead.DiscardDead(ctx, by, ids...) })
}

func (w faultOperator) ParkKey(ctx context.Context, k outbox.ParkedKey) (bool, error) {
	return call2(w.f, "ParkKey", func() (bool, error) { return w.parker.ParkKey(ctx, k) })
}

func (w faultOperator) UnparkKey(ctx context.Context, route string, key []byte, by string) (bool, error) {
	return call2(w.f, "UnparkKey", func() (bool, error) { return w.parker.UnparkKey(ctx, route, key, by) })
}

func (w faultOperator) ParkedKeys(ctx context.Context, lanes []outbox.Lane) ([]outbox.ParkedKey, error) {
	return call2(w.f, "ParkedKeys", func() ([]outbox.ParkedKey, error) { return w.parker.ParkedKeys(ctx, lanes) })
}

func (w faultOperator) MoveParked(ctx context.Context, leases []outbox.LaneLease, limit int) (moved int, done []outbox.ParkedKey, err error) {
	moved, err = call2(w.f, "MoveParked", func() (n int, err error) {
		n, done, err = w.mover.MoveParked(ctx, leases, limit)
		return n, err
	})
	if err != nil {
		done = nil
	}
	return moved, done, err
}

func (w faultOperator) Confirmed(ctx context.Context, lanes []outbox.Lane) (bool, error) {
	return call2(w.f, "Confirmed", func() (bool, error) { return w.conf.Confirmed(ctx, lanes) })
}

func (w faultOperator) Inspect(ctx context.Context, now time.Time) (outbox.Overview, error) {
	return call2(w.f, "Inspect", func() (outbox.Overview, error) { return w.insp.Inspect(ctx, now) })
}

type faultSmall struct {
	f      *Fault
	rel    outbox.Releaser
	clock  outbox.ServerClock
	router outbox.Router
	age    outbox.AgeStore
}

func (w faultSmall) ReleaseClaim(ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
	return call2(w.f, "ReleaseClaim", func() (bool, error) { return w.rel.ReleaseClaim(ctx, c, now) })
}

func (w faultSmall) ServerTime(ctx context.Context) (time.Time, error) {
	return call2(w.f, "ServerTime", func() (time.Time, error) { return w.clock.ServerTime(ctx) })
}

func (w faultSmall) Routes(ctx context.Context) ([]outbox.Route, error) {
	return call2(w.f, "Routes", func() ([]outbox.Route, error) { return w.router.Routes(ctx) })
}

func (w faultSmall) OldestPending(ctx context.Context, now time.Time) (created time.Time, ok bool, err error) {
	created, err = call2(w.f, "OldestPending", func() (t time.Time, err error) {
		t, ok, err = w.age.OldestPending(ctx, now)
		return t, err
	})
	return created, ok && err == nil, err
}
