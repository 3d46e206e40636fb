package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/storetest"
)

// slowSweeps is a store that takes its time for sweeps.
type slowSweeps struct {
	*storetest.Mem
	slow atomic.Bool
}

func (s *slowSweeps) SweepLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneSpot) (int, error) {
	if s.slow.Load() {
		time.Sleep(4 * time.Second)
	}
	return s.Mem.SweepLanes(ctx, reads, dst)
}

// A database that stood still for seconds does not keep what commits late waiting
// for minutes: a sweep that had to wait is no measure of what the next one costs.
func TestSweepAfterASlowOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, &storetest.MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 1, Unordered: 1}}}, nil)
		store := &slowSweeps{Mem: g.mem}
		_, stop := g.start(store, nil)
		late := g.mem.Begin()
		g.enlist(late, g.record(""))
		g.commit(g.record(""))
		time.Sleep(time.Second)
		store.slow.Store(true)
		time.Sleep(20 * time.Second)
		store.slow.Store(false)
		time.Sleep(10 * time.Second)
		if err := late.Commit(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := len(g.rec.First()); n != 2 {
			t.Errorf("%d messages delivered a minute after the late commit, want 2", n)
		}
		g.stop(stop)
	})
}
