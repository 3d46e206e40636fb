package inboxtest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/inbox"
)

// claims is the store's side of claims; without one the rule does not apply.
func (s *suite[Tx]) claims() (inbox.ClaimStore, bool) {
	cs, ok := s.Store.(inbox.ClaimStore)
	if !ok {
		s.t.Logf("%T has no claims", s.Store)
	}
	return cs, ok
}

func token(n byte) inbox.Token { return inbox.Token{15: n} }

func (s *suite[Tx]) claim(cs inbox.ClaimStore, r inbox.Record, n byte, want inbox.State) {
	s.t.Helper()
	if got, err := cs.ClaimMessage(s.ctx, r, token(n)); err != nil || got != want {
		s.t.Fatalf("ClaimMessage %s at %s = %v, %v, want %v", r.MessageID, r.ProcessedAt, got, err, want)
	}
}

func (s *suite[Tx]) answer(what string, got bool, err error, want bool) {
	s.t.Helper()
	if err != nil || got != want {
		s.t.Fatalf("%s = %t, %v, want %t", what, got, err, want)
	}
}

func claimStates[Tx any](t *testing.T, s *suite[Tx]) {
	cs, ok := s.claims()
	if !ok {
		return
	}
	s.claim(cs, rec("m", epoch, time.Minute), 1, inbox.Claimed)
	s.processedNow("m", epoch, false) // a claim is no record
	s.claim(cs, rec("m", epoch, time.Minute), 2, inbox.InProgress)
	other := rec("m", epoch, time.Minute)
	other.Consumer = "shipping"
	s.claim(cs, other, 3, inbox.Claimed)
	done, err := cs.CompleteMessage(s.ctx, rec("m", epoch.Add(time.Second), time.Hour), token(1))
	s.answer("CompleteMessage", done, err, true)
	s.processedNow("m", epoch.Add(time.Minute), true)
	s.claim(cs, rec("m", epoch.Add(time.Minute), time.Minute), 2, inbox.Done)
	s.reserved(rec("m", epoch.Add(time.Minute), time.Hour), false)
	s.claim(cs, rec("m", epoch.Add(time.Second+time.Hour), time.Minute), 4, inbox.Claimed) // the record has expired
}

func leaseEnds[Tx any](t *testing.T, s *suite[Tx]) {
	cs, ok := s.claims()
	if !ok {
		return
	}
	s.claim(cs, rec("m", epoch, time.Minute), 1, inbox.Claimed)
	end := epoch.Add(time.Minute)
	s.claim(cs, rec("m", end.Add(-time.Microsecond), time.Minute), 2, inbox.InProgress)
	s.claim(cs, rec("m", end, time.Minute), 2, inbox.Claimed)
	s.claim(cs, rec("m", end, time.Minute), 1, inbox.InProgress)
	if n, err := s.Store.Purge(s.ctx, end.Add(time.Minute), 10); err != nil || n != 1 {
		t.Fatalf("Purge of a claim that has ended removed %d, %v, want 1", n, err)
	}
	done, err := cs.CompleteMessage(s.ctx, rec("m", end.Add(time.Minute), time.Hour), token(2))
	s.answer("CompleteMessage of a claim that was purged", done, err, false)
}

func oldToken[Tx any](t *testing.T, s *suite[Tx]) {
	cs, ok := s.claims()
	if !ok {
		return
	}
	s.claim(cs, rec("m", epoch, time.Minute), 1, inbox.Claimed)
	later := epoch.Add(time.Minute)
	s.claim(cs, rec("m", later, time.Minute), 2, inbox.Claimed)
	got, err := cs.RenewMessage(s.ctx, rec("m", later, time.Hour), token(1))
	s.answer("RenewMessage with an old token", got, err, false)
	got, err = cs.ReleaseMessage(s.ctx, "billing", "m", token(1))
	s.answer("ReleaseMessage with an old token", got, err, false)
	got, err = cs.CompleteMessage(s.ctx, rec("m", later, time.Hour), token(1))
	s.answer("CompleteMessage with an old token", got, err, false)
	s.claim(cs, rec("m", later, time.Minute), 3, inbox.InProgress)
	s.processedNow("m", later, false)
	got, err = cs.CompleteMessage(s.ctx, rec("m", later, time.Hour), token(2))
	s.answer("CompleteMessage", got, err, true)
	got, err = cs.ReleaseMessage(s.ctx, "billing", "m", token(2))
	s.answer("ReleaseMessage after CompleteMessage", got, err, false)
	s.processedNow("m", later, true)
}

func renewal[Tx any](t *testing.T, s *suite[Tx]) {
	cs, ok := s.claims()
	if !ok {
		return
	}
	s.claim(cs, rec("m", epoch, time.Minute), 1, inbox.Claimed)
	renew := func(at time.Time, lease time.Duration, want bool) {
		t.Helper()
		got, err := cs.RenewMessage(s.ctx, rec("m", at, lease), token(1))
		s.answer("RenewMessage", got, err, want)
	}
	renew(epoch, time.Second, true) // true, and the later end stays
	s.claim(cs, rec("m", epoch.Add(time.Minute-time.Microsecond), time.Minute), 2, inbox.InProgress)
	renew(epoch.Add(30*time.Second), time.Minute, true)
	end := epoch.Add(90 * time.Second)
	s.claim(cs, rec("m", end.Add(-time.Microsecond), time.Minute), 2, inbox.InProgress)
	renew(end, time.Minute, false) // it has ended
	s.claim(cs, rec("m", end, time.Minute), 2, inbox.Claimed)
	renew(end, time.Minute, false)
}

func releaseFrees[Tx any](t *testing.T, s *suite[Tx]) {
	cs, ok := s.claims()
	if !ok {
		return
	}
	s.claim(cs, rec("m", epoch, time.Minute), 1, inbox.Claimed)
	for _, want := range []bool{true, false} {
		got, err := cs.ReleaseMessage(s.ctx, "billing", "m", token(1))
		s.answer("ReleaseMessage", got, err, want)
	}
	s.claim(cs, rec("m", epoch, time.Minute), 2, inbox.Claimed)
}

func lateComplete[Tx any](t *testing.T, s *suite[Tx]) {
	cs, ok := s.claims()
	if !ok {
		return
	}
	s.claim(cs, rec("m", epoch, time.Minute), 1, inbox.Claimed)
	later := epoch.Add(time.Hour)
	done, err := cs.CompleteMessage(s.ctx, rec("m", later, time.Hour), token(1))
	s.answer("CompleteMessage after the lease's end", done, err, true)
	s.claim(cs, rec("m", later, time.Minute), 2, inbox.Done)
}

func claimAndReserve[Tx any](t *testing.T, s *suite[Tx]) {
	cs, ok := s.claims()
	if !ok {
		return
	}
	s.claim(cs, rec("m", epoch, time.Minute), 1, inbox.Claimed)
	tx := s.begin()
	if got, err := s.Store.Reserve(s.ctx, tx, rec("m", epoch, time.Hour)); got || !errors.Is(err, inbox.ErrInProgress) {
		t.Fatalf("Reserve beside a live claim = %t, %v, want inbox.ErrInProgress", got, err)
	}
	s.reserve(tx, rec("other", epoch, time.Hour), true)
	s.commit(tx)
	s.reserved(rec("m", epoch.Add(time.Minute), time.Hour), true)
	done, err := cs.CompleteMessage(s.ctx, rec("m", epoch.Add(time.Minute), time.Hour), token(1))
	s.answer("CompleteMessage of what a reservation has taken", done, err, false)
}

func claimWaits[Tx any](t *testing.T, s *suite[Tx]) {
	cs, ok := s.claims()
	if !ok {
		return
	}
	tx := s.begin()
	s.reserve(tx, rec("m", epoch, time.Hour), true)
	result := make(chan error, 1)
	go func() {
		got, err := cs.ClaimMessage(s.ctx, rec("m", epoch, time.Minute), token(1))
		if err == nil && got != inbox.Done {
			err = errors.New("the claim beside a reservation is " + got.String())
		}
		result <- err
	}()
	select {
	case err := <-result:
		s.rollback(tx)
		t.Fatalf("the claim did not wait for the reservation: %v", err)
	case <-time.After(patience):
	}
	s.commit(tx)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

func oneHolder[Tx any](t *testing.T, s *suite[Tx]) {
	cs, ok := s.claims()
	if !ok {
		return
	}
	var holders atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			switch got, err := cs.ClaimMessage(s.ctx, rec("m", epoch, time.Minute), token(byte(i+1))); {
			case err != nil:
				t.Errorf("ClaimMessage: %v", err)
			case got == inbox.Claimed:
				holders.Add(1)
			case got != inbox.InProgress:
				t.Errorf("ClaimMessage = %v", got)
			}
		})
	}
	wg.Wait()
	if n := holders.Load(); n != 1 {
		t.Fatalf("%d of 64 claimers hold the message, want 1", n)
	}
}
