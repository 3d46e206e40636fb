package sqlcore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/outbox"
)

// ReadPending implements outbox.Store. It walks ids and not positions: its cost
// grows with the lanes, and with rows that are not eligible. Lanes that do not
// exist, and those that the store keeps unordered rows in, hold nothing.
func (s *Store) ReadPending(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (n int, err error) {
	if req.Lane < 0 {
		return 0, invalid("lane %d is negative: ordered lanes count from 1, Unordered is 0", req.Lane)
	}
	var lanes []any
	if req.Lane == outbox.Unordered {
		if lanes, err = s.laneRows(ctx, true); err != nil {
			return 0, s.wrap(ctx, "read pending", err)
		}
	}
	var bad outbox.RowError
	for after := req.After; n < len(dst); {
		texts := &s.q.ReadUnordered
		if req.Lane != outbox.Unordered {
			texts = &s.q.ReadLane
		}
		text, limit := texts.at(len(dst) - n)
		args := append(lanes[:len(lanes):len(lanes)], req.Now.UnixMicro())
		if req.Lane != outbox.Unordered {
			args = append(args, int64(req.Lane))
		}
		args = append(args, s.d.id(after))

		start, startBad, rows := n, len(bad.IDs), 0
		err := s.read(ctx, "read pending", func(q Querier) error {
			n, bad.IDs, bad.Errs, rows = start, bad.IDs[:startBad], bad.Errs[:startBad], 0
			var r row
			into := r.dest(nil)
			return q.Query(ctx, text, args, func(sr Row) error {
				if n == len(dst) {
					return nil
				}
				if err := sr.Scan(into...); err != nil {
					return err
				}
				rows++
				after = r.id.id
				rec, err := r.record()
				if err != nil {
					bad.IDs, bad.Errs = append(bad.IDs, r.id.id), append(bad.Errs, err)
					return nil
				}
				dst[n] = rec
				n++
				return nil
			})
		})
		if err != nil {
			return n, err
		}
		if rows < limit {
			break
		}
	}
	if len(bad.IDs) > 0 {
		return n, &bad
	}
	return n, nil
}

func checkClaim(c outbox.Claim) error {
	if c.ID == (outbox.ID{}) || c.Token == (outbox.Token{}) {
		return invalid("claim of %s has a zero id or token: use the record's id and outbox.NewToken", c.ID)
	}
	return nil
}

func checkExpiry(c outbox.Claim, now, expires time.Time) error {
	if !expires.After(now) {
		return invalid("claim of %s: expiry %v is not after now, %v", c.ID, expires, now)
	}
	return checkClaim(c)
}

// TryClaim implements outbox.Store. It is false while the row's lane has a live
// lease: it holds the lane's row and its owner's locked shared until it has
// committed, so that a lane cannot be acquired in between and its rows be sent
// by both (contract C11).
func (s *Store) TryClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (ok bool, err error) {
	if err := checkExpiry(c, now, expires); err != nil {
		return false, err
	}
	err = s.write(ctx, "claim", func(q Querier) error {
		ok = false
		var lanes []int64
		err := q.Query(ctx, s.q.FindPending, []any{s.d.id(c.ID)}, func(rows Row) error {
			var lane int64
			err := rows.Scan(&lane)
			lanes = append(lanes, lane)
			return err
		})
		if err != nil || len(lanes) == 0 {
			return err
		}
		lane := lanes[0]
		var owner idColumn
		if err := queryRow(ctx, q, s.q.LockLane, []any{lane}, &owner); err != nil {
			return fmt.Errorf("lane %d: %w", lane, err)
		}
		if owner.valid {
			live := 0
			err := queryRow(ctx, q, s.q.LockRelay, []any{s.d.id(owner.id)}, &live)
			if err != nil && err != errNoRow || live != 0 {
				return err
			}
		}
		args := []any{now.UnixMicro(), lane, s.d.id(c.ID), c.Token[:], ceiling(expires)}
		ok, err = s.either(ctx, q, s.q.ClaimHot, s.q.ClaimDeferred, args)
		if err == nil && !ok {
			// A promotion may have moved the row between the two.
			var n int64
			n, err = q.Exec(ctx, s.q.ClaimHot, args...)
			ok = n > 0
		}
		return err
	})
	return ok, err
}

// either runs the statement on the hot rows and, if it changed none, on the
// deferred ones.
func (s *Store) either(ctx context.Context, q Querier, hot, deferred string, args []any) (bool, error) {
	n, err := q.Exec(ctx, hot, args...)
	if err != nil || n > 0 {
		return n > 0, err
	}
	n, err = q.Exec(ctx, deferred, args...)
	return n > 0, err
}

// RenewClaim implements outbox.Store.
func (s *Store) RenewClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (ok bool, err error) {
	if err := checkExpiry(c, now, expires); err != nil {
		return false, err
	}
	err = s.write(ctx, "renew claim", func(q Querier) error {
		ok, err = s.either(ctx, q, s.q.RenewHot, s.q.RenewDeferred, []any{now.UnixMicro(), s.d.id(c.ID), c.Token[:], ceiling(expires)})
		return err
	})
	return ok, err
}

// Complete implements outbox.Store.
func (s *Store) Complete(ctx context.Context, c outbox.Claim, now time.Time) (ok bool, err error) {
	if err := checkClaim(c); err != nil {
		return false, err
	}
	err = s.write(ctx, "complete", func(q Querier) error {
		ok, err = s.either(ctx, q, s.q.DoneHot, s.q.DoneDeferred, []any{now.UnixMicro(), s.d.id(c.ID), c.Token[:]})
		return err
	})
	return ok, err
}

// RecordFailure implements outbox.Store. A keyed row stays where it is, as the
// head of its key; an unordered one waits among the deferred rows.
func (s *Store) RecordFailure(ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (ok bool, err error) {
	if err := checkClaim(c); err != nil {
		return false, err
	}
	if f.Reason == "" {
		return false, invalid("claim of %s: the reason of a failure is empty: say what went wrong", c.ID)
	}
	err = s.write(ctx, "record failure", func(q Querier) error {
		ok = false
		r, err := s.claimed(ctx, q, c, now)
		if err != nil || r == nil {
			return err
		}
		ok = true
		w := s.Rows(5)
		w.Int(r.lane)
		w.ID(c.ID)
		w.Int(r.attempts + 1)
		w.Text(outbox.CleanReason(f.Reason))
		writeTime(w, outbox.RoundUp(f.RetryAt))
		fail, unclaim := s.q.FailHot, s.q.UnclaimHot
		if r.deferred {
			fail, unclaim = s.q.FailDeferred, s.q.UnclaimDeferred
		}
		if _, err := q.Exec(ctx, fail, w.Args()...); err != nil {
			return err
		}
		if _, err := q.Exec(ctx, unclaim, r.lane, s.d.id(c.ID)); err != nil {
			return err
		}
		if r.keyed || r.deferred {
			return nil
		}
		_, err = s.deferRows(ctx, q, []place{{r.lane, c.ID}}, false)
		return err
	})
	return ok, err
}

// claimedRow is a row under a matching live claim.
type claimedRow struct {
	lane, attempts  int64
	keyed, deferred bool
}

func (s *Store) claimed(ctx context.Context, q Querier, c outbox.Claim, now time.Time) (found *claimedRow, err error) {
	for _, deferred := range []bool{false, true} {
		text := s.q.ClaimedHot
		if deferred {
			text = s.q.ClaimedDeferred
		}
		err := q.Query(ctx, text, []any{now.UnixMicro(), s.d.id(c.ID), c.Token[:]}, func(rows Row) error {
			r := claimedRow{deferred: deferred}
			keyed := 0
			err := rows.Scan(&r.lane, &r.attempts, &keyed)
			r.keyed = keyed != 0
			found = &r
			return err
		})
		if err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}

// ReleaseClaim implements outbox.Releaser.
func (s *Store) ReleaseClaim(ctx context.Context, c outbox.Claim, now time.Time) (ok bool, err error) {
	if err := checkClaim(c); err != nil {
		return false, err
	}
	err = s.write(ctx, "release claim", func(q Querier) error {
		ok = false
		r, err := s.claimed(ctx, q, c, now)
		if err != nil || r == nil {
			return err
		}
		ok = true
		text := s.q.UnclaimHot
		if r.deferred {
			text = s.q.UnclaimDeferred
		}
		_, err = q.Exec(ctx, text, r.lane, s.d.id(c.ID))
		return err
	})
	return ok, err
}

// PendingCount implements outbox.Store. It is exact, and reads every pending
// row's index entry or row: about a second for some millions.
func (s *Store) PendingCount(ctx context.Context, now time.Time) (n int64, err error) {
	err = s.read(ctx, "count pending", func(q Querier) error {
		n, _, err = s.count(ctx, q, now, 1, math.MaxInt32)
		return err
	})
	return n, err
}

// count counts the eligible rows of a range of lanes and finds the oldest.
func (s *Store) count(ctx context.Context, q Querier, now time.Time, first, last int64) (n int64, oldest time.Time, err error) {
	for _, text := range []string{s.q.CountHot, s.q.CountDeferred} {
		var some int64
		var created intColumn
		if err := queryRow(ctx, q, text, []any{now.UnixMicro(), first, last}, &some, &created); err != nil {
			return 0, time.Time{}, err
		}
		n += some
		if t := instant(created); created.Valid && (oldest.IsZero() || t.Before(oldest)) {
			oldest = t
		}
	}
	return n, oldest, nil
}

// OldestPending implements outbox.AgeStore. It looks at the first 128 eligible
// rows of each lane by position, which a row made long before it was enlisted
// can escape.
func (s *Store) OldestPending(ctx context.Context, now time.Time) (created time.Time, ok bool, err error) {
	args, err := s.laneRows(ctx, false)
	if err != nil {
		return created, false, s.wrap(ctx, "find the oldest pending row", err)
	}
	args = append(args, now.UnixMicro())
	err = s.read(ctx, "find the oldest pending row", func(q Querier) error {
		var us intColumn
		if err := queryRow(ctx, q, s.q.Oldest, args, &us); err != nil {
			return err
		}
		created, ok = instant(us), us.Valid
		return nil
	})
	return created, ok, err
}
