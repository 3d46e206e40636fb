package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/inbox"
)

// Fixture is a store under test, empty, and how to make transactions for it.
// All of it allows concurrent use.
type Fixture[Tx any] struct {
	Store inbox.Store[Tx]
	// Begin starts a transaction as the documentation of the store tells its
	// users to. It may wait while another one is open (SQLite). It need not
	// outlive ctx.
	Begin    func(ctx context.Context) (Tx, error)
	Commit   func(Tx) error
	Rollback func(Tx) error
	// Lost tells whether an error of Reserve means that the engine ended the
	// transaction for another one's sake, in a deadlock, so that the message has to
	// be delivered again. Nil where that cannot happen to deliveries of one message.
	Lost func(error) bool
}

// patience is how long a reservation that has to wait is watched waiting.
const patience = 100 * time.Millisecond

// Run checks every rule of [inbox.Store], and of [inbox.ClaimStore], one subtest a
// rule. Those of claims are left out where the store has none. newFixture is
// called once for each subtest.
func Run[Tx any](t *testing.T, newFixture func(t *testing.T) Fixture[Tx]) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *suite[Tx])
	}{
		{"I1_consumers_and_ids_are_separate", separate[Tx]},
		{"I1_expiry_frees_at_the_instant", expiry[Tx]},
		{"I1_zero_expiry_never_expires", never[Tx]},
		{"I1_purge_in_bounded_batches", purge[Tx]},
		{"I1_purge_keeps_what_is_being_taken_over", purgeBesideTakeOver[Tx]},
		{"I2_mark_upserts", mark[Tx]},
		{"I2_mark_belongs_to_the_transaction", markRollback[Tx]},
		{"I3_second_reservation_is_a_duplicate", duplicate[Tx]},
		{"I3_duplicate_leaves_the_transaction_usable", usable[Tx]},
		{"I3_rollback_frees", rollbackFrees[Tx]},
		{"I3_concurrent_duplicate_waits_then_skips", waitsForCommit[Tx]},
		{"I3_concurrent_duplicate_waits_then_runs_after_rollback", waitsForRollback[Tx]},
		{"I3_waiting_ends_with_the_context", waitEnds[Tx]},
		{"I3_64_deliveries_one_effect", oneEffect[Tx]},
		{"I3_64_deliveries_take_over_an_expired_one_once", oneTakeOver[Tx]},
		{"I4_states_of_a_message", claimStates[Tx]},
		{"I4_a_lease_ends_at_its_instant", leaseEnds[Tx]},
		{"I4_only_the_token_that_holds_it_counts", oldToken[Tx]},
		{"I4_renewal_prolongs_and_never_shortens", renewal[Tx]},
		{"I4_release_frees", releaseFrees[Tx]},
		{"I4_complete_after_the_lease", lateComplete[Tx]},
		{"I4_a_reservation_meets_a_claim", claimAndReserve[Tx]},
		{"I4_a_claim_waits_for_a_reservation", claimWaits[Tx]},
		{"I4_64_claimers_one_holder", oneHolder[Tx]},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c.run(t, &suite[Tx]{Fixture: newFixture(t), t: t, ctx: ctx})
		})
	}
}

type suite[Tx any] struct {
	Fixture[Tx]
	t   *testing.T
	ctx context.Context
}

// epoch is the instant at which the suite's story begins.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)

func rec(id string, at time.Time, ttl time.Duration) inbox.Record {
	r := inbox.Record{Consumer: "billing", MessageID: id, ProcessedAt: at}
	if ttl > 0 {
		r.ExpiresAt = at.Add(ttl)
	}
	return r
}

func (s *suite[Tx]) begin() Tx {
	s.t.Helper()
	tx, err := s.Begin(s.ctx)
	if err != nil {
		s.t.Fatalf("begin: %v", err)
	}
	return tx
}

func (s *suite[Tx]) commit(tx Tx) {
	s.t.Helper()
	if err := s.Commit(tx); err != nil {
		s.t.Fatalf("commit: %v", err)
	}
}

func (s *suite[Tx]) rollback(tx Tx) {
	s.t.Helper()
	if err := s.Rollback(tx); err != nil {
		s.t.Fatalf("rollback: %v", err)
	}
}

func (s *suite[Tx]) reserve(tx Tx, r inbox.Record, want bool) {
	s.t.Helper()
	got, err := s.Store.Reserve(s.ctx, tx, r)
	if err != nil {
		s.t.Fatalf("Reserve %s of %s at %s: %v", r.MessageID, r.Consumer, r.ProcessedAt, err)
	}
	if got != want {
		s.t.Fatalf("Reserve %s of %s at %s = %t, want %t", r.MessageID, r.Consumer, r.ProcessedAt, got, want)
	}
}

// reserved reserves in a transaction of its own.
func (s *suite[Tx]) reserved(r inbox.Record, want bool) {
	s.t.Helper()
	tx := s.begin()
	s.reserve(tx, r, want)
	s.commit(tx)
}

func (s *suite[Tx]) processed(tx Tx, id string, now time.Time, want bool) {
	s.t.Helper()
	got, err := s.Store.Processed(s.ctx, tx, "billing", id, now)
	if err != nil {
		s.t.Fatalf("Processed %s: %v", id, err)
	}
	if got != want {
		s.t.Fatalf("Processed %s at %s = %t, want %t", id, now, got, want)
	}
}

func (s *suite[Tx]) processedNow(id string, now time.Time, want bool) {
	s.t.Helper()
	tx := s.begin()
	s.processed(tx, id, now, want)
	s.rollback(tx)
}

func separate[Tx any](t *testing.T, s *suite[Tx]) {
	s.reserved(rec("m", epoch, time.Hour), true)
	other := rec("m", epoch, time.Hour)
	other.Consumer = "shipping"
	s.reserved(other, true)
	s.reserved(rec("M", epoch, time.Hour), true)
	other = rec("m", epoch, time.Hour)
	other.Consumer = "Billing"
	s.reserved(other, true)
	s.reserved(rec("mé", epoch, time.Hour), true)
	s.reserved(rec("me", epoch, time.Hour), true)
	s.reserved(rec("m", epoch, time.Hour), false)
}

func expiry[Tx any](t *testing.T, s *suite[Tx]) {
	end := epoch.Add(time.Hour)
	s.reserved(rec("m", epoch, time.Hour), true)
	s.processedNow("m", end.Add(-time.Microsecond), true)
	s.processedNow("m", end, false)
	s.reserved(rec("m", end.Add(-time.Microsecond), time.Hour), false)
	s.processedNow("m", end, false) // the refused one has not prolonged it
	s.reserved(rec("m", end, time.Hour), true)
	s.processedNow("m", end.Add(time.Hour-time.Microsecond), true)
	s.reserved(rec("m", end.Add(time.Minute), time.Hour), false)
	tx := s.begin() // a take-over that is rolled back leaves it expired
	s.reserve(tx, rec("m", end.Add(2*time.Hour), time.Hour), true)
	s.rollback(tx)
	s.reserved(rec("m", end.Add(2*time.Hour), time.Hour), true)
}

func never[Tx any](t *testing.T, s *suite[Tx]) {
	s.reserved(rec("m", epoch, 0), true)
	later := epoch.AddDate(500, 0, 0)
	s.processedNow("m", later, true)
	s.reserved(rec("m", later, time.Hour), false)
	if n, err := s.Store.Purge(s.ctx, later, 100); err != nil || n != 0 {
		t.Fatalf("Purge removed %d of the records that never expire, error %v", n, err)
	}
}

func purge[Tx any](t *testing.T, s *suite[Tx]) {
	tx := s.begin()
	for i := range 25 {
		s.reserve(tx, rec(fmt.Sprintf("old-%d", i), epoch, time.Hour), true)
	}
	s.reserve(tx, rec("live", epoch, time.Hour+time.Microsecond), true)
	s.commit(tx)
	end := epoch.Add(time.Hour)
	if n, err := s.Store.Purge(s.ctx, end.Add(-time.Microsecond), 10); err != nil || n != 0 {
		t.Fatalf("Purge before the expiry removed %d, error %v; want 0", n, err)
	}
	for _, want := range []int{10, 10, 5, 0} {
		if n, err := s.Store.Purge(s.ctx, end, 10); err != nil || n != want {
			t.Fatalf("Purge of at most 10 removed %d, error %v; want %d", n, err, want)
		}
	}
	s.processedNow("live", end, true)
	s.reserved(rec("old-3", epoch, time.Hour), true) // gone, not only expired
}

// The record is expired when Purge looks, and taken over when it deletes: what
// it deletes then would be the new reservation, and a duplicate would pass.
func purgeBesideTakeOver[Tx any](t *testing.T, s *suite[Tx]) {
	s.reserved(rec("m", epoch, time.Hour), true)
	later := epoch.Add(2 * time.Hour)
	tx := s.begin()
	s.reserve(tx, rec("m", later, time.Hour), true)
	purged := make(chan error, 1)
	go func() {
		_, err := s.Store.Purge(s.ctx, later, 10) // may wait, may pass it over
		purged <- err
	}()
	select {
	case err := <-purged:
		purged <- err
	case <-time.After(patience):
	}
	s.commit(tx)
	if err := <-purged; err != nil {
		t.Fatalf("Purge beside a take-over: %v", err)
	}
	s.reserved(rec("m", later.Add(time.Minute), time.Hour), false)
}

func mark[Tx any](t *testing.T, s *suite[Tx]) {
	tx := s.begin()
	s.processed(tx, "m", epoch, false)
	if err := s.Store.Mark(s.ctx, tx, rec("m", epoch, time.Hour)); err != nil {
		t.Fatal(err)
	}
	s.processed(tx, "m", epoch, true) // its own write
	s.commit(tx)
	s.processedNow("m", epoch, true)
	s.reserved(rec("m", epoch, time.Hour), false)
	tx = s.begin()
	if err := s.Store.Mark(s.ctx, tx, rec("m", epoch.Add(time.Minute), 3*time.Hour)); err != nil {
		t.Fatalf("Mark of a record that exists: %v", err)
	}
	s.commit(tx)
	s.processedNow("m", epoch.Add(2*time.Hour), true) // the later expiry counts
	tx = s.begin()
	if err := s.Store.Mark(s.ctx, tx, rec("m", epoch.Add(time.Minute), time.Hour)); err != nil {
		t.Fatal(err)
	}
	s.commit(tx)
	s.processedNow("m", epoch.Add(2*time.Hour), false) // overwritten, not the later of both
}

func markRollback[Tx any](t *testing.T, s *suite[Tx]) {
	tx := s.begin()
	if err := s.Store.Mark(s.ctx, tx, rec("m", epoch, time.Hour)); err != nil {
		t.Fatal(err)
	}
	s.rollback(tx)
	s.processedNow("m", epoch, false)
	s.reserved(rec("m", epoch, time.Hour), true)
}

func duplicate[Tx any](t *testing.T, s *suite[Tx]) {
	tx := s.begin()
	s.reserve(tx, rec("m", epoch, time.Hour), true)
	s.reserve(tx, rec("m", epoch, time.Hour), false) // in the same transaction too
	s.commit(tx)
	s.reserved(rec("m", epoch, time.Hour), false)
	s.processedNow("m", epoch, true)
}

func usable[Tx any](t *testing.T, s *suite[Tx]) {
	s.reserved(rec("m", epoch, time.Hour), true)
	tx := s.begin()
	s.reserve(tx, rec("m", epoch, time.Hour), false)
	s.reserve(tx, rec("other", epoch, time.Hour), true)
	s.commit(tx)
	s.processedNow("other", epoch, true)
}

func rollbackFrees[Tx any](t *testing.T, s *suite[Tx]) {
	tx := s.begin()
	s.reserve(tx, rec("m", epoch, time.Hour), true)
	s.rollback(tx)
	s.processedNow("m", epoch, false)
	s.reserved(rec("m", epoch, time.Hour), true)
}

// second begins a transaction and reserves m in it, beside the caller's.
func (s *suite[Tx]) second(ctx context.Context, result chan<- error, want bool) {
	tx, err := s.Begin(ctx)
	if err != nil {
		result <- fmt.Errorf("begin: %w", err)
		return
	}
	got, err := s.Store.Reserve(ctx, tx, rec("m", epoch, time.Hour))
	if err != nil {
		s.Rollback(tx)
		result <- fmt.Errorf("reserve: %w", err)
		return
	}
	if got != want {
		s.Rollback(tx)
		result <- fmt.Errorf("the concurrent duplicate's Reserve = %t, want %t", got, want)
		return
	}
	result <- s.Commit(tx)
}

func (s *suite[Tx]) contend(end func(Tx), want bool) {
	tx := s.begin()
	s.reserve(tx, rec("m", epoch, time.Hour), true)
	result := make(chan error, 1)
	go s.second(s.ctx, result, want)
	select {
	case err := <-result:
		s.rollback(tx)
		s.t.Fatalf("the concurrent duplicate did not wait for the other transaction: %v", err)
	case <-time.After(patience):
	}
	end(tx)
	if err := <-result; err != nil {
		s.t.Fatal(err)
	}
}

func waitsForCommit[Tx any](t *testing.T, s *suite[Tx]) { s.contend(s.commit, false) }

func waitsForRollback[Tx any](t *testing.T, s *suite[Tx]) {
	s.contend(s.rollback, true)
	s.reserved(rec("m", epoch, time.Hour), false)
}

func waitEnds[Tx any](t *testing.T, s *suite[Tx]) {
	tx := s.begin()
	s.reserve(tx, rec("m", epoch, time.Hour), true)
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	result := make(chan error, 1)
	go s.second(ctx, result, false)
	select {
	case err := <-result:
		if err == nil {
			t.Error("the concurrent duplicate got an answer while the other transaction was open")
		}
	case <-s.ctx.Done():
		t.Fatal("the concurrent duplicate waits although its context has ended")
	}
	s.commit(tx)
	s.reserved(rec("m", epoch, time.Hour), false)
}

// maxLost is how often one delivery may be lost: each failed handler can cost those
// who wait for it their transactions, once, or again if they are back before the
// first of them has its own.
const maxLost = 10

// deliver delivers message m 64 times at once, each in a transaction of its
// own. The first three that get it fail, and come again, as a broker would have
// them; so do those that were [Fixture.Lost].
func (s *suite[Tx]) deliver(in time.Time) {
	s.t.Helper()
	var effects, failures atomic.Int64
	failures.Store(3)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for lost := 0; ; {
				tx, err := s.Begin(s.ctx)
				if err != nil {
					s.t.Errorf("begin: %v", err)
					return
				}
				first, err := s.Store.Reserve(s.ctx, tx, rec("m", in, time.Hour))
				switch {
				case err != nil && lost < maxLost && s.Lost != nil && s.Lost(err):
					lost++
					s.Rollback(tx) // whatever it says of a transaction that has ended
					continue
				case err != nil:
					s.t.Errorf("Reserve: %v", err)
					s.Rollback(tx)
					return
				case first && failures.Add(-1) >= 0:
					if err := s.Rollback(tx); err != nil {
						s.t.Errorf("rollback: %v", err)
						return
					}
					continue
				case first:
					effects.Add(1)
				}
				if err := s.Commit(tx); err != nil {
					s.t.Errorf("commit: %v", err)
				}
				return
			}
		})
	}
	wg.Wait()
	if n := effects.Load(); n != 1 {
		s.t.Fatalf("%d effects of 64 deliveries, want 1", n)
	}
	s.processedNow("m", in, true)
}

func oneEffect[Tx any](t *testing.T, s *suite[Tx]) { s.deliver(epoch) }

func oneTakeOver[Tx any](t *testing.T, s *suite[Tx]) {
	s.reserved(rec("m", epoch.Add(-2*time.Hour), time.Hour), true)
	s.deliver(epoch)
	if err := s.ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("the deliveries took longer than a minute")
	}
}
