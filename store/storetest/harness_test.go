package storetest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

// memHarness is Mem as a third party would present its store, on a clock that
// Sleep moves.
func memHarness() Harness[*MemTx] { return memHarnessOf(func(m *Mem) outbox.Store { return m }) }

// memHarnessOf presents a store built around Mem.
func memHarnessOf(wrap func(*Mem) outbox.Store) Harness[*MemTx] {
	return Harness[*MemTx]{New: func(tb testing.TB) Instance[*MemTx] {
		var ahead atomic.Int64
		m := NewMem(&MemOptions{
			Routes: []outbox.Route{{Name: "default"}, {Name: "other", Ordered: 2, Unordered: 1}},
			Now:    func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		})
		return Instance[*MemTx]{
			Store:    wrap(m),
			Enlister: m,
			Begin:    func(context.Context) (*MemTx, error) { return m.Begin(), nil },
			Commit:   func(_ context.Context, tx *MemTx) error { return tx.Commit() },
			Rollback: func(_ context.Context, tx *MemTx) error { return tx.Rollback() },
			Corrupt: func(_ context.Context, id outbox.ID) error {
				m.Corrupt(id, errors.New("planted"))
				return nil
			},
			NotTx:   []any{m, NewMem(nil).Begin(), "dsn"},
			Migrate: func(context.Context) error { return nil },
			Sleep:   func(d time.Duration) { ahead.Add(int64(d)) },
		}
	}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	Run(t, memHarness())
}

// A store that has the six methods and nothing else runs every rule of S, E, R,
// C and B.
func TestConformanceOfABareStore(t *testing.T) {
	t.Parallel()
	h := memHarnessOf(func(m *Mem) outbox.Store { return struct{ outbox.Store }{m} })
	Run(t, h)
	Model(t, h, &ModelOptions{Rounds: 6})
}

func TestRulesAreNamedOnceAndNoneIsMissing(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, name := range Rules() {
		if seen[name] {
			t.Errorf("two rules are named %s", name)
		}
		seen[name] = true
		rule, _, _ := strings.Cut(name, "_")
		seen[rule] = true
	}
	// E7 is the unit of work's, which is above the store.
	for letter, last := range map[string]int{"S": 7, "E": 9, "R": 8, "C": 11, "B": 3, "D": 1} {
		for i := 1; i <= last; i++ {
			if rule := letter + strconv.Itoa(i); !seen[rule] && rule != "E7" {
				t.Errorf("no subtest proves %s", rule)
			}
		}
	}
}
