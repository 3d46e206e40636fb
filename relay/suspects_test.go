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
	"github.com/postrider/postrider/transport"
)

// wire is a relay's own way to the broker. Those that share a store have one each.
type wire struct {
	state atomic.Int32 // up, away or hung
	mu    sync.Mutex
	sent  []sending // what left
}

const (
	up int32 = iota
	away
	hung // takes messages and answers nothing
)

type sending struct {
	body     string
	attempts int // as the relay had them
	beside   int // messages in the same Send
}

func (w *wire) Send(ctx context.Context, ds []*transport.Delivery) {
	for _, d := range ds {
		o := transport.Accepted
		switch w.state.Load() {
		case away:
			d.Report(transport.Unreachable, errors.New("no route to host"))
			continue
		case hung:
			o = transport.Unknown
		}
		if d.Begin() != nil {
			continue
		}
		w.mu.Lock()
		w.sent = append(w.sent, sending{string(d.Record.Message.Body), d.Record.Attempts, len(ds) - 1})
		w.mu.Unlock()
		if o == transport.Unknown {
			<-ctx.Done()
		}
		d.Report(o, nil)
	}
}

func (w *wire) take() []sending {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sent
	w.sent = nil
	return sent
}

// aftermath is an outbox whose only relay has died, with all n messages in the
// hands of its senders. Every lane has some.
func aftermath(t *testing.T) (g *rig, n int) {
	g = newRig(t, &storetest.MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 4, Unordered: 2}}}, nil)
	for range 3 {
		for k := range 16 {
			g.commit(g.record(fmt.Sprint("k", k)))
		}
		for range 8 {
			g.commit(g.record(""))
		}
	}
	req := outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 6, TTL: time.Second}
	grant, err := g.mem.AcquireLanes(context.Background(), req)
	if err != nil || len(grant.Leases) != 6 {
		t.Fatalf("acquire: %+v, %v", grant, err)
	}
	set := outbox.SettleRequest{Owner: req.Owner}
	for _, l := range grant.Leases {
		set.TriedTo = append(set.TriedTo, outbox.LaneMark{Lane: l.Lane, Epoch: l.Epoch, Pos: 1000})
	}
	if _, err := g.mem.SettleLanes(context.Background(), set); err != nil {
		t.Fatal(err)
	}
	time.Sleep(req.TTL + time.Millisecond)
	return g, 72
}

func (g *rig) startOver(store outbox.Store, w *wire, opts *relay.Options) (stop func() error) {
	g.t.Helper()
	r, err := relay.New(store, map[string]transport.Transport{"default": w}, opts)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// alone fails unless n suspects went out, one at a time, each with an attempt
// counted before and no other.
func (g *rig) alone(what string, sent []sending, n int) {
	g.t.Helper()
	wrong := 0
	for _, s := range sent {
		if s.beside != 0 || s.attempts != 1 {
			if wrong++; wrong <= 3 {
				g.t.Errorf("%s sent %s beside %d others, with %d attempts counted: want alone, with 1", what, s.body, s.beside, s.attempts)
			}
		}
	}
	if len(sent) != n {
		g.t.Errorf("%s sent %d suspects, want %d", what, len(sent), n)
	}
}

// A relay that gives lanes of a dead owner back before their suspects are
// through does not clear them: it has not sent the message that kills.
func TestSuspectsOfALaneGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, n := aftermath(t)
		var one, two wire
		one.state.Store(away)
		stopOne := g.startOver(g.mem, &one, nil)
		time.Sleep(time.Second)
		stopTwo := g.startOver(g.mem, &two, nil)
		time.Sleep(15 * time.Second) // two renewals of the first, and the suspects
		first := two.take()
		if len(first) == 0 {
			t.Error("the second relay has sent nothing: its fair share is kept from it")
		}
		g.alone("the second relay", first, len(first))
		one.state.Store(up)
		time.Sleep(10 * time.Second)
		g.alone("the first relay", one.take(), n-len(first))
		if left := g.pending(); left != 0 {
			t.Errorf("%d messages are left", left)
		}
		g.commit(g.record("k0"), g.record(""))
		time.Sleep(5 * time.Second)
		for _, s := range append(one.take(), two.take()...) {
			if s.attempts != 0 {
				t.Errorf("%s, which nobody accuses, has %d attempts counted", s.body, s.attempts)
			}
		}
		g.stop(stopOne)
		g.stop(stopTwo)
	})
}

// The same at a clean stop. Its lanes are free at once all the same, and clean
// once the suspects are through.
func TestSuspectsOfARelayThatStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, n := aftermath(t)
		var takenOver atomic.Int32
		opts := &relay.Options{Hooks: relay.Hooks{TakenOver: func(outbox.LaneLease) { takenOver.Add(1) }}}
		var w wire
		w.state.Store(away)
		stop := g.startOver(g.mem, &w, opts)
		time.Sleep(time.Second)
		g.stop(stop)

		w.state.Store(up)
		stop = g.startOver(g.mem, &w, opts)
		time.Sleep(3 * time.Second) // the lease of the first would last 15
		g.alone("the next relay", w.take(), n)
		g.stop(stop)

		takenOver.Store(0)
		g.commit(g.record("k0"), g.record(""))
		stop = g.startOver(g.mem, &w, opts)
		time.Sleep(time.Second)
		if sent := w.take(); len(sent) != 2 || sent[0].attempts+sent[1].attempts != 0 || takenOver.Load() != 0 {
			t.Errorf("after a clean stop: sent %+v, %d lanes of a dead owner; want 2 messages without an attempt, and none", sent, takenOver.Load())
		}
		g.stop(stop)
	})
}

// unrenewed is a store without renewals for a while.
type unrenewed struct {
	*storetest.Mem
	cut atomic.Bool
}

func (f *unrenewed) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
	if f.cut.Load() {
		return outbox.LaneGrant{}, errors.New("connection lost")
	}
	return f.Mem.AcquireLanes(ctx, r)
}

// A relay that was late to renew takes its own lanes again: what it sent itself
// has killed nobody, what the dead owner sent is as suspect as before. The send
// that was cut short is no crash.
func TestSuspectsAfterALateRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, n := aftermath(t)
		store := &unrenewed{Mem: g.mem}
		var w wire
		w.state.Store(hung)
		stop := g.startOver(store, &w, &relay.Options{TTL: 2 * time.Second, MaxAttempts: 1})
		time.Sleep(500 * time.Millisecond)
		g.alone("the relay", w.take(), 1)
		store.cut.Store(true)
		time.Sleep(3 * time.Second)
		store.cut.Store(false)
		w.state.Store(up)
		time.Sleep(10 * time.Second)
		g.alone("the relay, once more,", w.take(), n)
		if g.dead() != 0 || g.pending() != 0 {
			t.Errorf("%d messages are dead and %d left, want none", g.dead(), g.pending())
		}
		g.stop(stop)
	})
}
