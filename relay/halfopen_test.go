package relay_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/storetest"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/transporttest"
)

// lines is a store whose sessions can lose their other end: every call on one
// opened before the cut waits for its context.
type lines struct {
	*storetest.Mem
	mu  sync.Mutex
	cut chan struct{}
}

func (l *lines) LaneSession(context.Context, string) (outbox.LaneSession, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &line{l.Mem, l.cut}, nil
}

// vanish cuts the lines opened so far.
func (l *lines) vanish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.cut)
	l.cut = make(chan struct{})
}

// line is one session.
type line struct {
	*storetest.Mem
	cut <-chan struct{}
}

func (l *line) Close() error { return nil }

func (l *line) vanished(ctx context.Context) error {
	select {
	case <-l.cut:
		<-ctx.Done()
		return fmt.Errorf("read tcp: %w", ctx.Err())
	default:
		return nil
	}
}

func (l *line) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (g outbox.LaneGrant, err error) {
	if err = l.vanished(ctx); err == nil {
		g, err = l.Mem.AcquireLanes(ctx, r)
	}
	return g, err
}

func (l *line) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (n int, err error) {
	if err = l.vanished(ctx); err == nil {
		n, err = l.Mem.ReadLanes(ctx, reads, dst)
	}
	return n, err
}

func (l *line) SweepLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneSpot) (n int, err error) {
	if err = l.vanished(ctx); err == nil {
		n, err = l.Mem.SweepLanes(ctx, reads, dst)
	}
	return n, err
}

func (l *line) SettleLanes(ctx context.Context, r outbox.SettleRequest) (res []outbox.SettleResult, err error) {
	if err = l.vanished(ctx); err == nil {
		res, err = l.Mem.SettleLanes(ctx, r)
	}
	return res, err
}

func (l *line) PromoteLanes(ctx context.Context, ls []outbox.LaneLease, dst []outbox.LaneRow) (n int, due time.Time, err error) {
	if err = l.vanished(ctx); err == nil {
		n, due, err = l.Mem.PromoteLanes(ctx, ls, dst)
	}
	return n, due, err
}

// P7: when the machine of the database vanishes without a word, a lone relay
// finds out by its renewals and gives up every line, not by the much longer
// limit of a read or a settle.
func TestHalfOpenDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, limit = 6 * time.Second, 10 * time.Second
		answer := make(chan struct{})
		g := newRig(t, nil, &transporttest.Options{Script: func(*transport.Delivery, int) transporttest.Reply {
			<-answer
			return transporttest.Reply{Outcome: transport.Accepted}
		}})
		store := &lines{Mem: g.mem, cut: make(chan struct{})}
		g.commit(g.record("k"))
		_, stop := g.start(store, &relay.Options{TTL: ttl})
		time.Sleep(time.Second)

		store.vanish()
		close(answer) // its settle waits on a dead line, as do the reads
		g.commit(g.record("k"), g.record("other"))
		time.Sleep(limit)
		if n, left := len(g.rec.First()), g.pending(); n != 3 || left != 0 {
			t.Errorf("P7: %d messages delivered and %d left %v after the lines broke, want 3 and 0", n, left, limit)
		}
		g.stop(stop)
		g.inOrder()
	})
}
