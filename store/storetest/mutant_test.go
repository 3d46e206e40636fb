package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

// recorder is a testing.TB that fails by itself alone, so that a suite can be
// seen failing.
type recorder struct {
	testing.TB // for the method that cannot be written elsewhere
	mu         sync.Mutex
	failed     bool
	log        []string
	cleanups   []func()
}

func (r *recorder) note(fail bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || fail
	r.log = append(r.log, text)
}

func (r *recorder) Helper()                   {}
func (r *recorder) Name() string              { return "recorder" }
func (r *recorder) Log(a ...any)              { r.note(false, fmt.Sprint(a...)) }
func (r *recorder) Logf(f string, a ...any)   { r.note(false, fmt.Sprintf(f, a...)) }
func (r *recorder) Error(a ...any)            { r.note(true, fmt.Sprint(a...)) }
func (r *recorder) Errorf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)) }
func (r *recorder) Fail()                     { r.note(true, "Fail") }
func (r *recorder) FailNow()                  { r.Fail(); runtime.Goexit() }
func (r *recorder) Fatal(a ...any)            { r.Error(a...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); runtime.Goexit() }
func (r *recorder) Skip(a ...any)             { r.Log(a...); runtime.Goexit() }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool              { r.mu.Lock(); defer r.mu.Unlock(); return r.failed }

// record runs fn as a test would and returns what it had to say.
func record(tb testing.TB, fn func(tb testing.TB)) (failed bool, log string) {
	r := &recorder{TB: tb}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(r)
	}()
	<-done
	for _, c := range slices.Backward(r.cleanups) {
		c()
	}
	return r.Failed(), strings.Join(r.log, "\n")
}

func runRule(tb testing.TB, name string, h Harness[*MemTx]) (failed bool, log string) {
	for _, r := range allRules {
		if r.name == name {
			return record(tb, func(tb testing.TB) { r.run(newEnv(tb, h.fixture(tb))) })
		}
	}
	tb.Fatalf("no rule is named %s", name)
	return false, ""
}

// mutant is Mem with one thing wrong.
type mutant struct {
	*Mem
	readPending   func(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error)
	tryClaim      func(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error)
	renewClaim    func(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error)
	complete      func(ctx context.Context, c outbox.Claim, now time.Time) (bool, error)
	recordFailure func(ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error)
	pendingCount  func(ctx context.Context, now time.Time) (int64, error)
	acquireLanes  func(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error)
	readLanes     func(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error)
	settleLanes   func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error)
	promoteLanes  func(ctx context.Context, leases []outbox.LaneLease, dst []outbox.LaneRow) (int, time.Time, error)
	replayDead    func(ctx context.Context, by string, ids ...outbox.ID) (outbox.ReplayResult, error)
	moveParked    func(ctx context.Context, leases []outbox.LaneLease, limit int) (int, []outbox.ParkedKey, error)
	confirmed     func(ctx context.Context, lanes []outbox.Lane) (bool, error)
	enlist        func(ctx context.Context, tx *MemTx, recs ...outbox.Record) error
}

func newMutant(m *Mem) *mutant {
	return &mutant{m, m.ReadPending, m.TryClaim, m.RenewClaim, m.Complete, m.RecordFailure, m.PendingCount,
		m.AcquireLanes, m.ReadLanes, m.SettleLanes, m.PromoteLanes, m.ReplayDead, m.MoveParked, m.Confirmed, m.Enlist}
}

func (m *mutant) ReadPending(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error) {
	return m.readPending(ctx, req, dst)
}
func (m *mutant) TryClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
	return m.tryClaim(ctx, c, now, expires)
}
func (m *mutant) RenewClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
	return m.renewClaim(ctx, c, now, expires)
}
func (m *mutant) Complete(ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
	return m.complete(ctx, c, now)
}
func (m *mutant) RecordFailure(ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error) {
	return m.recordFailure(ctx, c, now, f)
}
func (m *mutant) PendingCount(ctx context.Context, now time.Time) (int64, error) {
	return m.pendingCount(ctx, now)
}
func (m *mutant) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
	return m.acquireLanes(ctx, r)
}
func (m *mutant) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
	return m.readLanes(ctx, reads, dst)
}
func (m *mutant) SettleLanes(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
	return m.settleLanes(ctx, r)
}
func (m *mutant) PromoteLanes(ctx context.Context, leases []outbox.LaneLease, dst []outbox.LaneRow) (int, time.Time, error) {
	return m.promoteLanes(ctx, leases, dst)
}
func (m *mutant) ReplayDead(ctx context.Context, by string, ids ...outbox.ID) (outbox.ReplayResult, error) {
	return m.replayDead(ctx, by, ids...)
}
func (m *mutant) MoveParked(ctx context.Context, leases []outbox.LaneLease, limit int) (int, []outbox.ParkedKey, error) {
	return m.moveParked(ctx, leases, limit)
}
func (m *mutant) Confirmed(ctx context.Context, lanes []outbox.Lane) (bool, error) {
	return m.confirmed(ctx, lanes)
}
func (m *mutant) Enlist(ctx context.Context, tx *MemTx, recs ...outbox.Record) error {
	return m.enlist(ctx, tx, recs...)
}

// edit changes the stored rows behind the store's back.
func (m *mutant) edit(id outbox.ID, change func(r *row)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.rows[id]; r != nil {
		change(r)
	}
}

// mutantHarness presents a Mem that breaks as told.
func mutantHarness(breaks func(m *mutant)) Harness[*MemTx] {
	h := memHarness()
	sound := h.New
	h.New = func(tb testing.TB) Instance[*MemTx] {
		in := sound(tb)
		m := newMutant(in.Store.(*Mem))
		breaks(m)
		in.Store, in.Enlister = m, m
		return in
	}
	return h
}

// A suite that cannot fail proves nothing: each mutant breaks one rule, and the
// subtest of that rule has to say so.
func TestRulesNoticeMutants(t *testing.T) {
	t.Parallel()
	for _, c := range mutants {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if failed, log := runRule(t, c.rule, memHarness()); failed {
				t.Fatalf("%s fails on a sound store: %s", c.rule, log)
			}
			if failed, _ := runRule(t, c.rule, mutantHarness(c.breaks)); !failed {
				t.Errorf("%s does not notice %s", c.rule, c.name)
			}
		})
	}
}

// The model finds them by chance, and shows a short list of operations.
func TestModelNoticesMutants(t *testing.T) {
	t.Parallel()
	for _, c := range mutants {
		if !c.model {
			continue
		}
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			h := mutantHarness(c.breaks)
			failed, log := record(t, func(tb testing.TB) {
				if report := runModel(tb, func() *fixture { return h.fixture(tb) }, (&ModelOptions{Rounds: 60, Ops: 200, Shrink: -1}).withDefaults()); report != "" {
					tb.Error(report)
				}
			})
			if !failed {
				t.Errorf("the model does not notice %s", c.name)
			}
			t.Log(log)
		})
	}
}

// What fails is shown by a list of which little can be taken away.
func TestModelShrinks(t *testing.T) {
	t.Parallel()
	for _, c := range mutants {
		if c.name != "a failure counted twice" {
			continue
		}
		h := mutantHarness(c.breaks)
		_, log := record(t, func(tb testing.TB) {
			tb.Log(runModel(tb, func() *fixture { return h.fixture(tb) }, (&ModelOptions{Seed: 3, Rounds: 30}).withDefaults()))
		})
		t.Log(log)
		if lines := strings.Count(log, "\n"); lines == 0 || lines > 20 {
			t.Errorf("%d lines for a failure that takes 5 operations", lines)
		}
	}
}

// The same seed makes the same operations and the same report.
func TestModelIsDeterministic(t *testing.T) {
	t.Parallel()
	h := mutantHarness(mutants[0].breaks)
	var reports [2]string
	for i := range reports {
		_, reports[i] = record(t, func(tb testing.TB) {
			tb.Log(runModel(tb, func() *fixture { return h.fixture(tb) }, (&ModelOptions{Seed: 7}).withDefaults()))
		})
	}
	if reports[0] != reports[1] || !strings.Contains(reports[0], "seed 7") {
		t.Errorf("two runs of one seed:\n%s\n---\n%s", reports[0], reports[1])
	}
}
