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
	state atomic.Int32 // up, slow, away or hung
	mu    sync.Mutex
	sent  []sending // what left
}

const (
	up int32 = iota
	away
	hung // takes messages and answers nothing
	slow // takes messages that came meanwhile together
)

type sending struct {
	body     string
	attempts int // as the relay had them
	beside   int // messages in the same Send
}

func (w *wire) Send(ctx context.Context, ds []*transport.Delivery) {
	if w.state.Load() == slow {
		time.Sleep(50 * time.Millisecond)
	}
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

// aftermath is an outbox whose only relay has died. Every lane has some of the n
// messages.
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
	g.aftermath()
	return g, 72
}

// aftermath is what is left when the only relay has died, with all messages in the
// hands of its senders.
func (g *rig) aftermath() {
	g.t.Helper()
	req := outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 6, TTL: time.Second}
	grant, err := g.mem.AcquireLanes(context.Background(), req)
	if err != nil || len(grant.Leases) == 0 {
		g.t.Fatalf("acquire: %+v, %v", grant, err)
	}
	set := outbox.SettleRequest{Owner: req.Owner}
	for _, l := range grant.Leases {
		set.TriedTo = append(set.TriedTo, outbox.LaneMark{Lane: l.Lane, Epoch: l.Epoch, Pos: 1000})
	}
	if _, err := g.mem.SettleLanes(context.Background(), set); err != nil {
		g.t.Fatal(err)
	}
	time.Sleep(req.TTL + time.Millisecond)
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

// unheard is a store whose grants of lanes are never heard.
type unheard struct{ *storetest.Mem }

func (f unheard) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
	g, err := f.Mem.AcquireLanes(ctx, r)
	if r.Want > 0 {
		return outbox.LaneGrant{}, errors.New("connection lost")
	}
	return g, err
}

// A relay that stops gives back what it holds without having heard of it, and
// does not clear it either.
func TestSuspectsOfLanesUnheardOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, n := aftermath(t)
		var w wire
		stop := g.startOver(unheard{g.mem}, &w, nil)
		time.Sleep(10 * time.Millisecond)
		g.stop(stop)
		stop = g.startOver(g.mem, &w, nil)
		time.Sleep(3 * time.Second) // the lease of the first would last 15
		g.alone("the next relay", w.take(), n)
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

// mute is a store whose first answers to a count of an attempt are lost, and whose
// sweeps find nothing for a while.
type mute struct {
	*storetest.Mem
	answers atomic.Int32 // still to be lost
	blind   atomic.Bool
}

func (f *mute) SweepLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneSpot) (int, error) {
	if f.blind.Load() {
		return 0, nil
	}
	return f.Mem.SweepLanes(ctx, reads, dst)
}

func (f *mute) SettleLanes(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
	res, err := f.Mem.SettleLanes(ctx, r)
	for _, s := range r.Settlements {
		if s.Outcome == outbox.SettleCount && !s.TakeBack && f.answers.Add(-1) >= 0 {
			return nil, errors.New("connection lost")
		}
	}
	return res, err
}

// The last suspect of a lane goes on being one when the answer to its count is lost.
func TestSuspectWhoseCountHasNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, &storetest.MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 1, Unordered: 1}}}, nil)
		g.commit(g.record(""))
		g.aftermath()
		store := &mute{Mem: g.mem}
		store.answers.Store(1)
		store.blind.Store(true)
		var w wire
		w.state.Store(slow)
		stop := g.startOver(store, &w, &relay.Options{TTL: 2 * time.Second, InFlight: 1})
		time.Sleep(100 * time.Millisecond) // the lane is read: what comes now is no suspect
		const others = 5000
		for i := range others / 10 {
			store.blind.Store(i < others/20) // longer than a renewal takes
			for range 10 {
				g.commit(g.record(""))
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		alone, beside := 0, 0
		for _, s := range w.take() {
			switch {
			case s.attempts == 0:
				beside++
			case s.attempts == 1 && s.beside == 0:
				alone++
			default:
				t.Errorf("%s was sent beside %d others, with %d attempts counted: want alone, with 1", s.body, s.beside, s.attempts)
			}
		}
		if alone != 1 || beside != others {
			t.Errorf("%d messages were sent alone and %d with others, want 1 and %d", alone, beside, others)
		}
		g.stop(stop)
	})
}

// Who dies in front of a backlog leaves as suspects what it has sent, and little
// more: not all that it had read.
func TestSuspectsAreWhatWasSent(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		t.Run(fmt.Sprintf("key %q", key), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const backlog, sent, most = 1500, 10, 200
				g := newRig(t, &storetest.MemOptions{Routes: []outbox.Route{{Name: "default", Ordered: 1, Unordered: 1}}}, nil)
				for range backlog {
					g.commit(g.record(key))
				}
				store := &unrenewed{Mem: g.mem}
				var w wire
				w.state.Store(hung)
				stop := g.startOver(store, &w, &relay.Options{TTL: 2 * time.Second, InFlight: 1, Batch: sent})
				time.Sleep(time.Second)
				if n := len(w.take()); n == 0 {
					t.Fatal("nothing was sent")
				}
				store.cut.Store(true)
				_ = stop() // in the middle of a send, and its lanes are not given back

				w.state.Store(up)
				stop = g.startOver(g.mem, &w, nil)
				time.Sleep(time.Minute)
				alone := 0
				for _, s := range w.take() {
					alone += s.attempts
				}
				if left := g.pending(); left != 0 || alone < sent || alone > most {
					t.Errorf("%d messages were sent alone and %d are left, want %d to %d of %d, and none", alone, left, sent, most, backlog)
				}
				g.stop(stop)
			})
		})
	}
}
