package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

// capabilities lists what a store can do, by type assertion, as a relay does.
func capabilities(s outbox.Store) (out []string) {
	add := func(name string, ok bool) {
		if ok {
			out = append(out, name)
		}
	}
	_, ok := s.(outbox.LaneStore)
	add("LaneStore", ok)
	_, ok = s.(outbox.LaneSessioner)
	add("LaneSessioner", ok)
	_, ok = s.(outbox.Releaser)
	add("Releaser", ok)
	_, ok = s.(outbox.ServerClock)
	add("ServerClock", ok)
	_, ok = s.(outbox.Router)
	add("Router", ok)
	_, ok = s.(outbox.AgeStore)
	add("AgeStore", ok)
	_, ok = s.(outbox.DeadLetters)
	add("DeadLetters", ok)
	_, ok = s.(outbox.Parker)
	add("Parker", ok)
	_, ok = s.(outbox.LaneParker)
	add("LaneParker", ok)
	_, ok = s.(outbox.Confirmer)
	add("Confirmer", ok)
	_, ok = s.(outbox.Inspector)
	add("Inspector", ok)
	c, ok := s.(outbox.Concurrent)
	add("Concurrent", ok && c.ConcurrentUse())
	o, ok := s.(outbox.CommitOrder)
	add("CommitOrder", ok && o.CommitsInOrder())
	return out
}

// sessions is a Mem that pins connections, as far as anyone can see.
type sessions struct {
	*Mem
	open int
}

type session struct {
	*Mem
	of *sessions
}

func (s *sessions) LaneSession(context.Context, string) (outbox.LaneSession, error) {
	s.open++
	return session{s.Mem, s}, nil
}

func (s session) Close() error {
	s.of.open--
	return nil
}

type small struct {
	outbox.Releaser
	outbox.ServerClock
	outbox.Router
	outbox.AgeStore
}

type operator struct {
	outbox.DeadLetters
	outbox.Parker
	outbox.LaneParker
	outbox.Confirmer
	outbox.Inspector
}

func TestFaultForwardsExactlyWhatTheStoreCan(t *testing.T) {
	t.Parallel()
	m := NewMem(nil)
	sess := &sessions{Mem: m}
	sm, op := small{m, m, m, m}, operator{m, m, m, m, m}
	for name, s := range map[string]outbox.Store{
		"everything": sess,
		"Mem":        m,
		"bare":       struct{ outbox.Store }{m},
		"concurrent": struct {
			outbox.Store
			outbox.Concurrent
		}{m, m},
		"lanes": struct {
			outbox.Store
			outbox.LaneStore
		}{m, m},
		"small": struct {
			outbox.Store
			small
		}{m, sm},
		"operator": struct {
			outbox.Store
			operator
		}{m, op},
		"operator and small": struct {
			outbox.Store
			operator
			small
		}{m, op, sm},
		"lanes and operator": struct {
			outbox.Store
			outbox.LaneStore
			operator
		}{m, m, op},
		"lanes and small": struct {
			outbox.Store
			outbox.LaneStore
			small
		}{m, m, sm},
		"sessions": struct {
			outbox.Store
			outbox.LaneStore
			outbox.LaneSessioner
		}{m, m, sess},
		"sessions and operator": struct {
			outbox.Store
			outbox.LaneStore
			outbox.LaneSessioner
			operator
		}{m, m, sess, op},
		"sessions and small": struct {
			outbox.Store
			outbox.LaneStore
			outbox.LaneSessioner
			small
		}{m, m, sess, sm},
	} {
		f, err := NewFault(s, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := capabilities(f.Store()), capabilities(s); !slices.Equal(got, want) {
			t.Errorf("%s: the wrapper has %v, the store %v", name, got, want)
		}
	}
	if _, err := NewFault(struct {
		outbox.Store
		outbox.Router
	}{m, m}, nil); err == nil {
		t.Error("a store with a part of a group: no error")
	}
	if _, err := NewFault(m, &FaultOptions{After: 1.5}); !errors.Is(err, outbox.ErrInvalidArgument) {
		t.Errorf("a probability of 1.5: got %v, want ErrInvalidArgument", err)
	}
}

// A healthy wrapper is the store: the suite sees no difference.
func TestFaultWithoutFaultsConforms(t *testing.T) {
	t.Parallel()
	Run(t, memHarnessOf(func(m *Mem) outbox.Store {
		f, err := NewFault(&sessions{Mem: m}, nil)
		if err != nil {
			panic(err)
		}
		return f.Store()
	}))
}

func TestFaultBeforeAndAfterTheCommit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	lost := errors.New("broken pipe")
	m := NewMem(nil)
	f, err := NewFault(m, &FaultOptions{Err: lost})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var claims []outbox.Claim
	for range 4 {
		tx := m.Begin()
		rec := testRecord("")
		if err := m.Enlist(ctx, tx, rec); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		claims = append(claims, outbox.Claim{ID: rec.ID, Token: outbox.NewToken()})
	}
	f.Fail("TryClaim", BeforeCommit, 1, 1)
	f.Fail("TryClaim", AfterCommit, 0, 1)
	for i, want := range []struct {
		fails bool
		point FaultPoint
		taken bool
	}{{taken: true}, {fails: true, point: BeforeCommit}, {fails: true, point: AfterCommit, taken: true}, {taken: true}} {
		ok, err := f.Store().TryClaim(ctx, claims[i], now, now.Add(time.Hour))
		var fault *FaultError
		if errors.As(err, &fault) != want.fails || want.fails && (ok || fault.Point != want.point || fault.Method != "TryClaim" || !errors.Is(err, lost)) {
			t.Errorf("call %d: got %v, %v; want %+v", i, ok, err, want)
		}
		if taken, err := m.RenewClaim(ctx, claims[i], now, now.Add(time.Hour)); taken != want.taken || err != nil {
			t.Errorf("call %d: the row is claimed: %v, %v; want %v", i, taken, err, want.taken)
		}
	}
	if f.Calls("TryClaim") != 4 || f.Injected("TryClaim") != 2 || f.Injected("") != 2 {
		t.Errorf("%d calls, %d and %d injected; want 4, 2, 2", f.Calls("TryClaim"), f.Injected("TryClaim"), f.Injected(""))
	}
	// A refusal of the store's own is not hidden by a fault after it.
	f.Fail("TryClaim", AfterCommit, 0, 1)
	if _, err := f.Store().TryClaim(ctx, outbox.Claim{}, now, now.Add(time.Hour)); !errors.Is(err, outbox.ErrInvalidArgument) {
		t.Errorf("got %v, want ErrInvalidArgument", err)
	}
}

func TestFaultByProbabilityIsDeterministic(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) (out []string) {
		f, err := NewFault(NewMem(nil), &FaultOptions{Seed: seed, Before: 0.3, After: 0.3, Methods: []string{"PendingCount"}})
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			_, err := f.Store().PendingCount(context.Background(), time.Now())
			if _, err := f.Store().ReadPending(context.Background(), outbox.ReadRequest{}, make([]outbox.Record, 1)); err != nil {
				t.Errorf("a method that is not named fails: %v", err)
			}
			text := "ok"
			if err != nil {
				text = err.Error()
			}
			out = append(out, text)
		}
		if n := f.Injected("PendingCount"); n < 80 || n > 160 {
			t.Errorf("%d of 200 calls failed, want about 120", n)
		}
		f.Heal()
		if _, err := f.Store().PendingCount(context.Background(), time.Now()); err != nil {
			t.Errorf("after Heal: %v", err)
		}
		return out
	}
	if a, b := run(7), run(7); !slices.Equal(a, b) {
		t.Error("one seed, two outcomes")
	}
	if a, b := run(7), run(8); slices.Equal(a, b) {
		t.Error("two seeds, one outcome")
	}
}

// A settle whose answer is lost is repeated and does no harm (contract C8).
func TestFaultLostAnswerOfASettle(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := &sessions{Mem: NewMem(nil)}
	f, err := NewFault(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	rec := testRecord("k")
	tx := s.Begin()
	if err := errors.Join(s.Enlist(ctx, tx, rec), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	sess, err := f.Store().(outbox.LaneSessioner).LaneSession(ctx, "settle")
	if err != nil {
		t.Fatal(err)
	}
	owner := outbox.NewID()
	g, err := sess.AcquireLanes(ctx, outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 100, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var reads []outbox.LaneRead
	for _, l := range g.Leases {
		reads = append(reads, outbox.LaneRead{Lane: l.Lane})
	}
	dst := make([]outbox.LaneRow, 100)
	n, err := sess.ReadLanes(ctx, reads, dst)
	if err != nil || n != 1 {
		t.Fatalf("ReadLanes: %d, %v", n, err)
	}
	req := outbox.SettleRequest{Owner: owner, Settlements: []outbox.Settlement{{
		Lane: dst[0].Lane, Epoch: g.Leases[0].Epoch, Pos: dst[0].Pos, ID: rec.ID, Outcome: outbox.SettleFailed, Attempt: true, Reason: "refused",
	}}}
	f.Fail("SettleLanes", AfterCommit, 0, 1)
	res, err := sess.SettleLanes(ctx, req)
	var fault *FaultError
	if !errors.As(err, &fault) || res != nil {
		t.Fatalf("SettleLanes: %v, %v; want a FaultError", res, err)
	}
	res, err = sess.SettleLanes(ctx, req)
	if err != nil || !slices.Equal(res, []outbox.SettleResult{outbox.Gone}) {
		t.Fatalf("SettleLanes again: %v, %v; want Gone", res, err)
	}
	if n, err := sess.ReadLanes(ctx, reads, dst); err != nil || n != 1 || dst[0].Record.Attempts != 1 {
		t.Errorf("after the repeat: %d rows, %d attempts, %v; want 1 and 1", n, dst[0].Record.Attempts, err)
	}
	f.Fail("LaneSession", AfterCommit, 0, 1)
	if _, err := f.Store().(outbox.LaneSessioner).LaneSession(ctx, "read"); !errors.As(err, &fault) {
		t.Errorf("LaneSession: got %v, want a FaultError", err)
	}
	if err := sess.Close(); err != nil || s.open != 0 {
		t.Errorf("Close: %v, %d sessions left open", err, s.open)
	}
}
