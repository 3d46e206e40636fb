package storetest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

var (
	_ outbox.Store       = (*Mem)(nil)
	_ outbox.Concurrent  = (*Mem)(nil)
	_ outbox.Releaser    = (*Mem)(nil)
	_ outbox.ServerClock = (*Mem)(nil)
	_ outbox.Router      = (*Mem)(nil)
	_ outbox.AgeStore    = (*Mem)(nil)
)

// ConcurrentUse implements [outbox.Concurrent]: true.
func (m *Mem) ConcurrentUse() bool { return true }

// ServerTime implements [outbox.ServerClock].
func (m *Mem) ServerTime(ctx context.Context) (now time.Time, err error) {
	err = m.read(ctx, "ServerTime", func() error {
		now = m.now()
		return nil
	})
	return now, err
}

// Routes implements [outbox.Router].
func (m *Mem) Routes(ctx context.Context) ([]outbox.Route, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return slices.Clone(m.routes), nil
}

// eligible is contract R4. It judges each row alone: holding a key back is the
// lane owner's.
func (m *Mem) eligible(r *row, now time.Time) bool {
	return !r.aside && m.parked[keyOf(r)] == nil && !r.due().After(now) && !r.claimLive(now)
}

// ReadPending implements [outbox.Store].
func (m *Mem) ReadPending(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (n int, err error) {
	if req.Lane < 0 {
		return 0, invalid("lane %d is negative: ordered lanes count from 1, Unordered is 0", req.Lane)
	}
	if len(dst) == 0 {
		return 0, nil
	}
	var bad outbox.RowError
	err = m.read(ctx, "ReadPending", func() error {
		var found []*row
		for _, r := range m.rows {
			if r.rec.Lane == req.Lane && bytes.Compare(r.rec.ID[:], req.After[:]) > 0 && m.eligible(r, req.Now) {
				found = append(found, r)
			}
		}
		slices.SortFunc(found, func(a, b *row) int { return bytes.Compare(a.rec.ID[:], b.rec.ID[:]) })
		for _, r := range found[:min(len(found), len(dst))] {
			rec, err := m.decode(r)
			if err != nil {
				bad.IDs, bad.Errs = append(bad.IDs, r.rec.ID), append(bad.Errs, err)
				continue
			}
			dst[n] = rec
			n++
		}
		return nil
	})
	if err == nil && len(bad.IDs) > 0 {
		err = &bad
	}
	return n, err
}

func checkClaim(c outbox.Claim) error {
	if c.ID == (outbox.ID{}) || c.Token == (outbox.Token{}) {
		return invalid("claim %s has a zero id or token", c.ID)
	}
	return nil
}

func checkExpiry(c outbox.Claim, now, expires time.Time) error {
	if !expires.After(now) {
		return invalid("claim %s: expiry %v is not after now %v", c.ID, expires, now)
	}
	return checkClaim(c)
}

// TryClaim implements [outbox.Store].
func (m *Mem) TryClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (ok bool, err error) {
	if err := checkExpiry(c, now, expires); err != nil {
		return false, err
	}
	err = m.write(ctx, "TryClaim", func() error {
		r := m.rows[c.ID]
		// A leased lane is read without claims; a claim beside it would send
		// the row twice (C11).
		if r != nil && m.eligible(r, now) && !m.leased(r.lane) {
			r.token, r.claimed, ok = c.Token, expires, true
		}
		return nil
	})
	return ok, err
}

// claim returns the row under c's live claim, nil if there is none (C6).
func (m *Mem) claim(c outbox.Claim, now time.Time) *row {
	if r := m.rows[c.ID]; r != nil && r.token == c.Token && r.claimLive(now) {
		return r
	}
	return nil
}

func (r *row) unclaim() { r.token, r.claimed = outbox.Token{}, time.Time{} }

// RenewClaim implements [outbox.Store].
func (m *Mem) RenewClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (ok bool, err error) {
	if err := checkExpiry(c, now, expires); err != nil {
		return false, err
	}
	err = m.write(ctx, "RenewClaim", func() error {
		if r := m.claim(c, now); r != nil {
			ok = true
			if expires.After(r.claimed) {
				r.claimed = expires
			}
		}
		return nil
	})
	return ok, err
}

// Complete implements [outbox.Store].
func (m *Mem) Complete(ctx context.Context, c outbox.Claim, now time.Time) (ok bool, err error) {
	if err := checkClaim(c); err != nil {
		return false, err
	}
	err = m.write(ctx, "Complete", func() error {
		if r := m.claim(c, now); r != nil {
			m.take(r)
			ok = true
		}
		return nil
	})
	return ok, err
}

// RecordFailure implements [outbox.Store].
func (m *Mem) RecordFailure(ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (ok bool, err error) {
	if err := checkClaim(c); err != nil {
		return false, err
	}
	if f.Reason == "" {
		return false, invalid("claim %s: the reason of a failure is empty", c.ID)
	}
	err = m.write(ctx, "RecordFailure", func() error {
		if r := m.claim(c, now); r != nil {
			ok = true
			r.unclaim()
			m.fail(r, true, f.Reason, f.RetryAt)
		}
		return nil
	})
	return ok, err
}

// fail keeps the row for a retry: a keyed one stays at the head of its key, an
// unkeyed one leaves the hot range until it is due.
func (m *Mem) fail(r *row, attempt bool, reason string, retryAt time.Time) {
	m.spend(r, attempt, reason)
	r.retryAt = outbox.RoundUp(retryAt)
	if !r.keyed() && !r.deferred {
		m.move(r, true)
	}
}

// spend writes a failure's reason and, if it counts, the attempt.
func (m *Mem) spend(r *row, attempt bool, reason string) {
	if attempt {
		r.rec.Attempts++
	}
	r.rec.LastError = outbox.CleanReason(reason)
	if r.failedAt.IsZero() {
		r.failedAt = m.now()
	}
}

// ReleaseClaim implements [outbox.Releaser].
func (m *Mem) ReleaseClaim(ctx context.Context, c outbox.Claim, now time.Time) (ok bool, err error) {
	if err := checkClaim(c); err != nil {
		return false, err
	}
	err = m.write(ctx, "ReleaseClaim", func() error {
		if r := m.claim(c, now); r != nil {
			r.unclaim()
			ok = true
		}
		return nil
	})
	return ok, err
}

// PendingCount implements [outbox.Store].
func (m *Mem) PendingCount(ctx context.Context, now time.Time) (n int64, err error) {
	err = m.read(ctx, "PendingCount", func() error {
		for _, r := range m.rows {
			if m.eligible(r, now) {
				n++
			}
		}
		return nil
	})
	return n, err
}

// OldestPending implements [outbox.AgeStore].
func (m *Mem) OldestPending(ctx context.Context, now time.Time) (created time.Time, ok bool, err error) {
	err = m.read(ctx, "OldestPending", func() error {
		for _, r := range m.rows {
			if m.eligible(r, now) && (!ok || r.rec.CreatedAt.Before(created)) {
				created, ok = r.rec.CreatedAt, true
			}
		}
		return nil
	})
	return created, ok, err
}
