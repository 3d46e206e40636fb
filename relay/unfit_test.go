package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/storetest"
)

// smallPool lends so many connections, and then says that it has no more.
type smallPool struct {
	*storetest.Mem
	limit int

	mu           sync.Mutex
	open, closed int
}

type lent struct {
	outbox.LaneStore
	p *smallPool
}

func (p *smallPool) LaneSession(context.Context, string) (outbox.LaneSession, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open-p.closed >= p.limit {
		return nil, fmt.Errorf("%w: the pool allows %d connections", outbox.ErrInvalidArgument, p.limit)
	}
	p.open++
	return &lent{p.Mem, p}, nil
}

func (l *lent) Close() error {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.closed++
	return nil
}

// A pool that is too small ends Run at once, with what it says, and is no outage;
// what was lent is given back.
func TestPoolTooSmall(t *testing.T) {
	t.Parallel()
	for limit := range 4 {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, nil, nil)
			p := &smallPool{Mem: g.mem, limit: limit}
			outages := 0
			_, stop := g.start(p, &relay.Options{Hooks: relay.Hooks{Store: func(error) { outages++ }}})
			time.Sleep(time.Minute)
			if err := stop(); !errors.Is(err, outbox.ErrInvalidArgument) {
				t.Errorf("of %d connections: Run returned %v, want the pool's error", limit, err)
			}
			if outages > 0 || p.open != p.closed {
				t.Errorf("of %d connections: %d outages told, %d connections opened, %d closed", limit, outages, p.open, p.closed)
			}
		})
	}
}

// staleTables do not fit reads for some time.
type staleTables struct {
	*storetest.Mem
	from, span time.Duration
	began      time.Time
}

func (s *staleTables) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
	if at := time.Since(s.began); at >= s.from && at < s.from+s.span {
		return 0, fmt.Errorf("%w: an index is missing", outbox.ErrSchema)
	}
	return s.Mem.ReadLanes(ctx, reads, dst)
}

// Tables of another program end Run at once; tables that did fit are waited for, as
// while somebody restores them.
func TestTablesThatDoNotFit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, nil)
		g.commit(g.record("k"))
		outages := 0
		_, stop := g.start(&staleTables{Mem: g.mem, span: time.Hour, began: time.Now()}, &relay.Options{Hooks: relay.Hooks{Store: func(error) { outages++ }}})
		time.Sleep(time.Minute)
		if err := stop(); !errors.Is(err, outbox.ErrSchema) || outages > 0 {
			t.Errorf("Run returned %v after %d outages were told, want outbox.ErrSchema and none", err, outages)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, nil)
		_, stop := g.start(&staleTables{Mem: g.mem, from: time.Minute, span: time.Minute, began: time.Now()}, nil)
		time.Sleep(90 * time.Second)
		g.commit(g.record("k"))
		time.Sleep(time.Minute)
		if n := len(g.rec.Accepted()); n != 1 {
			t.Errorf("%d messages were sent when the tables were back, want 1", n)
		}
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// gone are tables that somebody drops for a restore.
type gone struct {
	*storetest.Mem
	dropped atomic.Bool
	rows    atomic.Bool // drop them after the next read that finds a row
	none    bool        // this relay gets no lane
}

func (g *gone) err() error {
	if g.dropped.Load() {
		return fmt.Errorf("%w: a table is missing", outbox.ErrSchema)
	}
	return nil
}

func (g *gone) AcquireLanes(ctx context.Context, req outbox.LaneRequest) (outbox.LaneGrant, error) {
	if err := g.err(); err != nil {
		return outbox.LaneGrant{}, err
	}
	if g.none {
		return outbox.LaneGrant{Now: time.Now()}, nil
	}
	return g.Mem.AcquireLanes(ctx, req)
}

func (g *gone) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
	if err := g.err(); err != nil {
		return 0, err
	}
	n, err := g.Mem.ReadLanes(ctx, reads, dst)
	if n > 0 && g.rows.CompareAndSwap(true, false) {
		g.dropped.Store(true)
	}
	return n, err
}

func (g *gone) SettleLanes(ctx context.Context, req outbox.SettleRequest) ([]outbox.SettleResult, error) {
	if err := g.err(); err != nil {
		return nil, err
	}
	return g.Mem.SettleLanes(ctx, req)
}

// Tables that are dropped for a while end no Run that has worked with them: not where
// its first write ever finds none, nor where it stops meanwhile, nor where others have
// left it no lane to read.
func TestTablesDroppedLater(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"at its first write", "at its stop", "without a lane"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, nil, nil)
				store := &gone{Mem: g.mem, none: name == "without a lane"}
				_, stop := g.start(store, nil)
				time.Sleep(time.Second)
				switch name {
				case "at its first write":
					store.rows.Store(true)
					g.commit(g.record("k"))
					time.Sleep(time.Minute)
					store.dropped.Store(false)
					time.Sleep(time.Minute)
					if n := g.pending(); n != 0 {
						t.Errorf("%d rows are left when the tables are back", n)
					}
				case "at its stop":
					store.dropped.Store(true)
				case "without a lane":
					time.Sleep(10 * time.Minute)
					store.dropped.Store(true)
					time.Sleep(time.Minute)
				}
				g.stop(stop)
			})
		})
	}
}
