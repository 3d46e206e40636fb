package relay

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// leaser renews the window every TTL/3, takes lanes up to the fair share and
// gives back what is beyond it, drained.
type leaser struct {
	loop
	e    *engine
	at   time.Time // when to renew next
	from time.Time // when it was first answered
	held []outbox.LaneLease
	old  *window   // its sends are not back yet
	give time.Time // until then they are waited for

	unsure bool // lanes may be held that a lost answer has named
	asked  bool // at the stop, which those are
	ended  bool // the stop has said all
}

func (l *leaser) next() (*call, wait) {
	e := l.e
	e.mu.Lock()
	w, now := e.window, time.Now()
	if w.over() {
		lost := l.endWindow("it was not renewed in time")
		e.mu.Unlock()
		e.leasesLost(lost, "it was not renewed in time")
		l.tell(nil)
		return nil, wait{}
	}
	defer e.mu.Unlock()
	if l.old != nil {
		// A send of the old window may still put bytes on the wire; reading the
		// lane again before it is back would send the same row beside it.
		if l.old.sends > 0 && now.Before(l.give) {
			return nil, wait{d: l.give.Sub(now)}
		}
		l.old = nil
	}
	if now.Before(l.at) && !e.core.drained() && !e.core.hold {
		return nil, wait{d: min(l.at.Sub(now), max(w.left(), time.Millisecond))}
	}
	return l.renewCall(w, now), wait{}
}

// margin is how long before its end a lease is not trusted any more.
func (l *leaser) margin() time.Duration { return max(l.e.opt.TTL/10, 100*time.Millisecond) }

func (l *leaser) request(w *window) outbox.LaneRequest {
	req := outbox.LaneRequest{Owner: w.owner, TTL: l.e.opt.TTL}
	for _, rt := range l.e.core.routes {
		req.Routes = append(req.Routes, rt.name)
	}
	return req
}

func (l *leaser) renewCall(w *window, started time.Time) *call {
	e := l.e
	losses := e.losses
	req := l.request(w)
	var released []*lane
	for _, ln := range e.core.list {
		if ln.draining && ln.pending == 0 {
			req.Release = append(req.Release, e.core.leaving(ln))
			released = append(released, ln)
		}
	}
	switch {
	case e.core.stopped:
	case e.shares == nil:
		req.Want = math.MaxInt32
	default:
		req.Want, _ = l.balance()
	}
	var grant outbox.LaneGrant
	return &call{
		timeout: max(e.opt.TTL/3, 500*time.Millisecond),
		do: func(ctx context.Context, ls outbox.LaneStore) (err error) {
			grant, err = ls.AcquireLanes(ctx, req)
			return err
		},
		end: func(err error) {
			reason := ""
			e.mu.Lock()
			var lost []outbox.LaneLease
			l.unsure = err != nil && (l.unsure || req.Want > 0)
			switch {
			case errors.Is(err, outbox.ErrOwnerEnded):
				reason = "the store ended it"
				lost = l.endWindow(reason)
			case err != nil:
				l.at = started.Add(e.opt.TTL / 3)
				if w.over() {
					reason = "it was not renewed in time"
					lost = l.endWindow(reason)
				} else {
					l.at = time.Now() // at once, after the loop's pause
				}
			case !w.extend(started.Add(e.opt.TTL - l.margin())):
				reason = "its renewal came too late"
				lost = l.endWindow(reason)
			default:
				reason = "it has another owner"
				e.renews++
				if l.from.IsZero() {
					l.from = started
				}
				// Others may have left it no lane to read.
				if started.Sub(l.from) >= e.opt.TTL {
					e.begun.Store(true)
				}
				lost = l.granted(w, started, req.Want, grant, released)
				if losses == e.losses {
					e.core.hold = false
				}
			}
			held, taken := e.held(), e.core.taken
			e.core.taken = nil
			e.mu.Unlock()
			e.leasesLost(lost, reason)
			l.tell(held)
			if hook := e.opt.Hooks.TakenOver; hook != nil {
				for _, ls := range taken {
					hook(ls)
				}
			}
			e.read.signal()
			e.sweep.signal()
			e.settle.signal()
			for _, rt := range e.core.routes {
				signal(rt.kick)
			}
		},
	}
}

// granted takes the answer of a renewal.
func (l *leaser) granted(w *window, started time.Time, want int, g outbox.LaneGrant, released []*lane) (lost []outbox.LaneLease) {
	e := l.e
	for _, ln := range released {
		e.core.drop(ln)
	}
	for _, ln := range e.core.grant(g.Leases, w) {
		lost = append(lost, ln.lease)
	}
	e.clock = clock{g.Now, time.Now()}
	e.shares = g.Shares
	e.all = true
	short, over := l.balance()
	for _, ln := range over {
		e.core.drain(ln)
	}
	shared := slices.ContainsFunc(g.Shares, func(s outbox.LaneShare) bool { return s.Relays > 1 })
	switch {
	case short > want && !e.core.stopped:
		l.at = started
	case short > 0 || shared:
		// Where relays share a route, one that leaves is noticed within a poll.
		l.at = time.Now().Add(min(e.opt.PollMax, e.opt.TTL/3))
	default:
		l.at = started.Add(e.opt.TTL / 3)
	}
	return lost
}

// balance tells how many lanes are missing to the fair shares, and which ones
// are beyond them: those without suspects first, which are read at full speed
// elsewhere, then those with the least under way. One with suspects waits for
// nothing: its next owner goes on with them, while here they might be held up for
// as long as a broker is away.
func (l *leaser) balance() (short int, over []*lane) {
	for _, s := range l.e.shares {
		var keep []*lane
		for _, ln := range l.e.core.list {
			if ln.route.name == s.Route && !ln.draining {
				keep = append(keep, ln)
			}
		}
		if n := s.Fair() - len(keep); n >= 0 {
			short += n
			continue
		}
		accused := map[*lane]int{}
		for _, ln := range keep {
			if l.e.core.accused(ln) {
				accused[ln] = 1
			}
		}
		slices.SortStableFunc(keep, func(a, b *lane) int {
			return cmp.Or(accused[a]-accused[b], a.pending-b.pending)
		})
		over = append(over, keep[:len(keep)-s.Fair()]...)
	}
	return short, over
}

// endWindow gives every lane up; the next window begins when the sends of this
// one are back.
func (l *leaser) endWindow(reason string) (lost []outbox.LaneLease) {
	e := l.e
	w := e.window
	w.end()
	e.core.seen[evWindow]++
	for _, ln := range slices.Clone(e.core.list) {
		lost = append(lost, ln.lease)
		e.core.drop(ln)
	}
	l.old, l.give, l.at = w, time.Now().Add(e.opt.TTL), time.Time{}
	e.window = newWindow(l.signal)
	e.shares, l.unsure = nil, false
	return lost
}

// lastCall is what a relay that stops still has to ask of the store, nil at the
// end: which lanes it holds, where the answer to that was lost, and to end its owner.
// Lanes that it does not know of would be given back clean, suspects or not; then
// all of them are left to the end of the lease.
func (l *leaser) lastCall() (c *call) {
	e := l.e
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case l.ended:
		return nil
	case l.unsure && !l.asked:
		l.asked = true
		return l.renewCall(e.window, time.Now())
	}
	l.ended = true
	if l.unsure {
		l.endWindow("")
		return nil
	}
	return l.endCall()
}

// endCall ends the owner and gives every lane back. Under the lock.
func (l *leaser) endCall() *call {
	e := l.e
	req := l.request(e.window)
	req.End = true
	for _, ln := range e.core.list {
		if ls := e.core.leaving(ln); ls.Unclean {
			req.Release = append(req.Release, ls)
		}
	}
	return &call{
		timeout: settleGrace,
		do: func(ctx context.Context, ls outbox.LaneStore) error {
			_, err := ls.AcquireLanes(ctx, req)
			return err
		},
		end: func(error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			l.endWindow("")
		},
	}
}

func (e *engine) leasesLost(lost []outbox.LaneLease, reason string) {
	hook := e.opt.Hooks.LeaseLost
	if hook == nil {
		return
	}
	for _, ls := range lost {
		hook(ls, reason)
	}
}

// tell calls the hook when the lanes held are others than last time.
func (l *leaser) tell(held []outbox.LaneLease) {
	same := slices.EqualFunc(l.held, held, func(a, b outbox.LaneLease) bool { return a.Lane == b.Lane && a.Epoch == b.Epoch })
	l.held = held
	if hook := l.e.opt.Hooks.Lanes; hook != nil && !same {
		hook(held)
	}
}

// held lists the leases, by lane.
func (e *engine) held() []outbox.LaneLease {
	held := make([]outbox.LaneLease, len(e.core.list))
	for i, l := range e.core.list {
		held[i] = l.lease
	}
	return held
}
