package relay

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// leaseLoop renews the window every TTL/3, takes lanes up to the fair share and
// gives back what is beyond it, drained.
func (e *engine) leaseLoop(ctx context.Context) {
	s := e.session("lease")
	defer s.end()
	failures := 0
	for ctx.Err() == nil {
		started := time.Now()
		w, req, released := e.leaseRequest()
		var grant outbox.LaneGrant
		err := s.do(ctx, max(e.opt.TTL/3, 500*time.Millisecond), func(ctx context.Context, ls outbox.LaneStore) (err error) {
			grant, err = ls.AcquireLanes(ctx, req)
			return err
		})
		trust := started.Add(e.opt.TTL - e.margin())
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, outbox.ErrOwnerEnded):
			e.endWindow(ctx, w, "the store ended it")
			e.retryWait(ctx, 0)
			continue
		case err != nil:
			failures++
			if !w.live() && len(req.Release)+e.heldLanes() > 0 {
				e.endWindow(ctx, w, "it was not renewed in time")
			}
			e.retryWait(ctx, failures)
			continue
		case !w.extend(trust):
			e.endWindow(ctx, w, "its renewal came too late")
			continue
		}
		failures = 0
		next := e.granted(ctx, w, started, req.Want, grant, released)
		w.watch(func() { signal(e.kick.lease) })
		pause(ctx, min(next, w.left()), e.kick.lease)
		if !w.live() {
			e.endWindow(ctx, w, "it was not renewed in time")
		}
	}
}

// margin is how long before its end a lease is not trusted any more.
func (e *engine) margin() time.Duration { return max(e.opt.TTL/10, 100*time.Millisecond) }

func (e *engine) heldLanes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.core.lanes)
}

// leaseRequest asks for the lanes still wanted and names the drained ones.
func (e *engine) leaseRequest() (*window, outbox.LaneRequest, []*lane) {
	e.mu.Lock()
	defer e.mu.Unlock()
	req := outbox.LaneRequest{Owner: e.window.owner, TTL: e.opt.TTL}
	for name := range e.core.routes {
		req.Routes = append(req.Routes, name)
	}
	slices.Sort(req.Routes)
	var released []*lane
	for _, l := range e.core.lanes {
		if l.draining && l.pending == 0 {
			req.Release = append(req.Release, l.lease)
			released = append(released, l)
		}
	}
	switch {
	case e.core.stopped:
	case e.shares == nil:
		req.Want = math.MaxInt32
	default:
		for _, missing := range e.missing() {
			req.Want += max(missing, 0)
		}
	}
	return e.window, req, released
}

// missing is, per route, how many lanes fewer than its fair share the relay
// keeps; negative where it keeps more.
func (e *engine) missing() map[string]int {
	m := map[string]int{}
	for _, s := range e.shares {
		m[s.Route] = s.Fair()
	}
	for _, l := range e.core.lanes {
		if !l.draining {
			m[l.route.name]--
		}
	}
	return m
}

// granted takes the answer of a renewal and returns when to ask again.
func (e *engine) granted(ctx context.Context, w *window, started time.Time, want int, g outbox.LaneGrant, released []*lane) time.Duration {
	e.mu.Lock()
	for _, l := range released {
		e.core.drop(l)
	}
	fresh, lost, changed := e.core.grant(g.Leases, w)
	e.clock = clock{g.Now, time.Now()}
	e.shares = g.Shares
	if e.core.hold && started.After(e.lostAt) {
		e.core.hold = false
	}
	e.mu.Unlock()
	for _, l := range lost {
		e.leaseLost(l.lease, "it has another owner")
	}
	loaded := e.loadParked(ctx, w, append(fresh, changed...))

	e.mu.Lock()
	short, shared := e.balance(), false
	for _, sh := range g.Shares {
		shared = shared || sh.Relays > 1
	}
	again := e.core.drained() || short > want
	var held []outbox.LaneLease
	if len(fresh)+len(lost)+len(released) > 0 {
		for _, l := range e.core.lanes {
			held = append(held, l.lease)
		}
	}
	e.mu.Unlock()
	if hook := e.opt.Hooks.Lanes; hook != nil && len(fresh)+len(lost)+len(released) > 0 {
		slices.SortFunc(held, func(a, b outbox.LaneLease) int { return int(a.Lane - b.Lane) })
		hook(held)
	}
	e.all.Store(true)
	e.kickAll()
	switch {
	case again:
		return 0
	case !loaded || short > 0 || shared:
		// Where relays share a route, one that leaves is noticed within a poll.
		return min(e.opt.PollMax, e.opt.TTL/3)
	}
	return e.opt.TTL/3 - time.Since(started)
}

// balance drains lanes beyond the fair share and tells how many are missing.
func (e *engine) balance() (short int) {
	for route, missing := range e.missing() {
		short += max(missing, 0)
		for ; missing < 0; missing++ {
			var least *lane
			for _, l := range e.core.lanes {
				if l.route.name == route && !l.draining && (least == nil || l.pending < least.pending) {
					least = l
				}
			}
			e.core.drain(least)
		}
	}
	return short
}

// drained tells whether a lane waits to be given back.
func (c *core) drained() bool {
	for _, l := range c.lanes {
		if l.draining && l.pending == 0 {
			return true
		}
	}
	return false
}

// loadParked learns the parked keys of lanes before anything of them is read.
func (e *engine) loadParked(ctx context.Context, w *window, lanes []*lane) bool {
	e.mu.Lock()
	for _, l := range e.core.lanes {
		if !l.loaded && !slices.Contains(lanes, l) {
			lanes = append(lanes, l)
		}
	}
	e.mu.Unlock()
	if len(lanes) == 0 {
		return true
	}
	var parked []outbox.ParkedKey
	if e.parker != nil {
		numbers := make([]outbox.Lane, len(lanes))
		for i, l := range lanes {
			numbers[i] = l.lease.Lane
		}
		ctx, cancel := context.WithTimeout(ctx, min(max(w.left(), time.Millisecond), callTimeout))
		defer cancel()
		var err error
		if parked, err = e.parker.ParkedKeys(ctx, numbers); err != nil {
			e.lost("parked keys", err)
			return false
		}
	}
	e.state.set("parked keys", nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range lanes {
		now := map[string]bool{}
		for _, p := range parked {
			if p.Lane == l.lease.Lane {
				now[string(p.Key)] = true
			}
		}
		for k := range now {
			if !l.parked[k] {
				e.core.park(l, []byte(k))
			}
		}
		for k := range l.parked {
			if !now[k] {
				e.core.unpark(l, []byte(k))
			}
		}
		l.loaded, l.moving = true, true
	}
	return true
}

// endWindow gives every lane up and begins a new window once the sends of the
// old one are back.
func (e *engine) endWindow(ctx context.Context, w *window, reason string) {
	w.end()
	e.mu.Lock()
	var lost []outbox.LaneLease
	for _, l := range e.core.lanes {
		lost = append(lost, l.lease)
		e.core.drop(l)
	}
	e.mu.Unlock()
	for _, ls := range lost {
		e.leaseLost(ls, reason)
	}
	if hook := e.opt.Hooks.Lanes; hook != nil && len(lost) > 0 {
		hook(nil)
	}
	// A send of the old window may still put bytes on the wire; reading the
	// lane again before it is back would send the same row beside it.
	back := make(chan struct{})
	go func() {
		w.sends.Wait()
		close(back)
	}()
	pause(ctx, e.opt.TTL, back)
	e.mu.Lock()
	e.window = newWindow(context.WithoutCancel(ctx))
	e.shares = nil
	e.mu.Unlock()
}

func (e *engine) leaseLost(ls outbox.LaneLease, reason string) {
	if hook := e.opt.Hooks.LeaseLost; hook != nil {
		hook(ls, reason)
	}
}

// endLease is the clean stop: every lane is given back at once.
func (e *engine) endLease(ctx context.Context) {
	e.mu.Lock()
	req := outbox.LaneRequest{Owner: e.window.owner, TTL: e.opt.TTL, End: true}
	for name := range e.core.routes {
		req.Routes = append(req.Routes, name)
	}
	for _, l := range e.core.lanes {
		e.core.drop(l)
	}
	e.mu.Unlock()
	s := e.session("lease")
	defer s.end()
	_ = s.do(ctx, settleGrace, func(ctx context.Context, ls outbox.LaneStore) error {
		_, err := ls.AcquireLanes(ctx, req)
		return err
	}) // else the lanes are free when the lease runs out
}
