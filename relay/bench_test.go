package relay_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/transport"
)

// endless is a store whose lanes never run dry and cost nothing: what is left
// is the relay's own work.
type endless struct {
	outbox.Store
	route  outbox.Route
	keys   int // 0: unordered rows
	body   []byte
	left   atomic.Int64 // rows still to be read
	mu     sync.Mutex
	next   int64
	settle atomic.Int64
}

func (s *endless) Routes(context.Context) ([]outbox.Route, error) {
	return []outbox.Route{s.route}, nil
}

func (s *endless) AcquireLanes(_ context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
	g := outbox.LaneGrant{Now: time.Now(), Shares: []outbox.LaneShare{{Route: s.route.Name, Lanes: s.route.Lanes(), Relays: 1}}}
	for i := range s.route.Lanes() {
		g.Leases = append(g.Leases, outbox.LaneLease{Lane: s.route.First + outbox.Lane(i), Route: s.route.Name, Owner: r.Owner, Epoch: 1, ExpiresIn: r.TTL})
	}
	return g, nil
}

func (s *endless) ReadLanes(_ context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (n int, err error) {
	limit := outbox.LaneLimit(len(dst), len(reads))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rd := range reads {
		for range limit {
			if s.left.Add(-1) < 0 {
				return n, nil
			}
			s.next++
			lr := &dst[n]
			*lr = outbox.LaneRow{Lane: rd.Lane, Pos: s.next}
			lr.Record.Transport, lr.Record.Type = s.route.Name, "bench.made.v1"
			binary.BigEndian.PutUint64(lr.Record.ID[8:], uint64(s.next))
			lr.Record.Message.Body = s.body
			if s.keys > 0 {
				lr.Record.Message.Key = fmt.Appendf(nil, "%d/%d", rd.Lane, int(s.next)%s.keys)
			}
			n++
		}
	}
	return n, nil
}

func (s *endless) SweepLanes(context.Context, []outbox.LaneRead, []outbox.LaneSpot) (int, error) {
	return 0, nil
}

func (s *endless) SettleLanes(_ context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
	res := make([]outbox.SettleResult, len(r.Settlements))
	for i := range res {
		res[i] = outbox.Settled
	}
	s.settle.Add(int64(len(res)))
	return res, nil
}

func (s *endless) PromoteLanes(context.Context, []outbox.LaneLease, []outbox.LaneRow) (int, time.Time, error) {
	return 0, time.Time{}, nil
}

// taker accepts everything at once.
type taker struct{}

func (taker) Send(_ context.Context, ds []*transport.Delivery) {
	for _, d := range ds {
		if d.Begin() == nil {
			d.Report(transport.Accepted, nil)
		}
	}
}

// BenchmarkRelay is the relay's own cost of one message: store and broker cost
// nothing.
func BenchmarkRelay(b *testing.B) {
	for _, keys := range []int{0, 1000, 10} {
		name := fmt.Sprintf("keys=%d", keys)
		if keys == 0 {
			name = "unordered"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			s := &endless{route: outbox.Route{Name: "default", First: 1, Ordered: 16, Unordered: 8}, keys: keys, body: make([]byte, 1024)}
			r, err := relay.New(s, map[string]transport.Transport{"default": taker{}}, nil)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			s.left.Store(int64(b.N))
			go func() { done <- r.Run(ctx) }()
			for s.settle.Load() < int64(b.N) {
				time.Sleep(time.Millisecond)
			}
			b.StopTimer()
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}
