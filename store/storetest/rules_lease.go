package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// owner is a relay, as far as leases go.
type owner struct {
	e      *env
	store  outbox.LaneStore
	id     outbox.ID
	ttl    time.Duration
	leases map[outbox.Lane]outbox.LaneLease
	share  outbox.LaneShare
}

func (e *env) lanes() outbox.LaneStore {
	s, _ := e.store.(outbox.LaneStore)
	return s
}

// owner returns a relay that holds nothing yet; its window is longer than any
// test.
func (e *env) owner() *owner {
	return &owner{e: e, store: e.lanes(), id: outbox.NewID(), ttl: 10 * time.Minute}
}

func (o *owner) do(r outbox.LaneRequest) (outbox.LaneGrant, error) {
	r.Owner, r.TTL, r.Routes = o.id, o.ttl, []string{o.e.fix.route}
	g, err := o.store.AcquireLanes(o.e.ctx, r)
	if err == nil {
		o.leases = map[outbox.Lane]outbox.LaneLease{}
		for _, l := range g.Leases {
			o.leases[l.Lane] = l
		}
		if len(g.Shares) == 1 {
			o.share = g.Shares[0]
		}
	}
	return g, err
}

func (o *owner) try(want int) (outbox.LaneGrant, error) {
	return o.do(outbox.LaneRequest{Want: want})
}

func (o *owner) acquire(want int) outbox.LaneGrant {
	o.e.Helper()
	g, err := o.try(want)
	o.e.ok(err)
	return g
}

// acquireAll takes every lane of the route; the owner must be alone.
func (o *owner) acquireAll() {
	o.e.Helper()
	o.acquire(1 << 20)
	if len(o.leases) == 0 || len(o.leases) != o.share.Lanes {
		o.e.Fatalf("a lone relay holds %d lanes of %+v", len(o.leases), o.share)
	}
}

func (o *owner) end() {
	o.e.Helper()
	g, err := o.do(outbox.LaneRequest{End: true})
	o.e.ok(err)
	o.e.equal("lanes after the end", len(g.Leases), 0)
}

func (o *owner) release(leases ...outbox.LaneLease) {
	o.e.Helper()
	_, err := o.do(outbox.LaneRequest{Release: leases})
	o.e.ok(err)
}

// list returns the leases by lane.
func (o *owner) list() []outbox.LaneLease {
	var out []outbox.LaneLease
	for _, l := range o.leases {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b outbox.LaneLease) int { return int(a.Lane - b.Lane) })
	return out
}

// ended checks that the window is closed for good.
func (o *owner) ended() {
	o.e.Helper()
	for _, r := range []outbox.LaneRequest{{}, {Want: 1}, {Release: o.list()}, {End: true}} {
		r.Owner, r.TTL, r.Routes = o.id, o.ttl, []string{o.e.fix.route}
		if g, err := o.store.AcquireLanes(o.e.ctx, r); !errors.Is(err, outbox.ErrOwnerEnded) {
			o.e.Errorf("AcquireLanes%+v of an ended owner: got %v, %v; want ErrOwnerEnded", r, g, err)
		}
	}
}

var leaseRules = []rule{
	{"P2_acquire_grants_lanes", needLanes, func(e *env) {
		o := e.owner()
		g := o.acquire(3)
		e.equal("leases", len(g.Leases), 3)
		e.equal("shares", len(g.Shares), 1)
		e.equal("relays", g.Shares[0].Relays, 1)
		e.equal("route", g.Shares[0].Route, e.fix.route)
		if g.Now.IsZero() {
			e.Errorf("the grant does not tell the server's time")
		}
		seen := map[outbox.Lane]bool{}
		for _, l := range g.Leases {
			if l.Owner != o.id || l.Route != e.fix.route || l.Lane < 1 || l.Epoch < 1 || l.Unclean || seen[l.Lane] {
				e.Errorf("lease %+v", l)
			}
			if l.ExpiresIn <= o.ttl/2 || l.ExpiresIn > o.ttl {
				e.Errorf("lane %d expires in %v of %v", l.Lane, l.ExpiresIn, o.ttl)
			}
			seen[l.Lane] = true
		}
		g = o.acquire(2)
		e.equal("want is beside those held", len(g.Leases), 5)
		o.acquireAll()
		g = o.acquire(10)
		e.equal("all lanes", len(g.Leases), g.Shares[0].Lanes)
	}},
	{"P2_invalid_requests", needLanes, func(e *env) {
		good := outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{e.fix.route}, TTL: time.Minute, Want: 1}
		for name, c := range map[string]struct {
			set  func(*outbox.LaneRequest)
			want error
		}{
			"zero owner":    {func(r *outbox.LaneRequest) { r.Owner = outbox.ID{} }, outbox.ErrInvalidArgument},
			"short TTL":     {func(r *outbox.LaneRequest) { r.TTL = time.Second - 1 }, outbox.ErrInvalidArgument},
			"unknown route": {func(r *outbox.LaneRequest) { r.Routes = []string{"no-such-route"} }, outbox.ErrUnknownRoute},
		} {
			r := good
			c.set(&r)
			if _, err := e.lanes().AcquireLanes(e.ctx, r); !errors.Is(err, c.want) {
				e.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		}
		e.owner().acquireAll() // nobody else is counted as a relay
	}},
	{"P2_renewal_keeps_lanes_and_epochs", needLanes, func(e *env) {
		o := e.owner()
		before := o.acquire(4).Leases
		after := o.acquire(0).Leases
		e.equal("leases", len(after), 4)
		slices.SortFunc(before, func(a, b outbox.LaneLease) int { return int(a.Lane - b.Lane) })
		for i, l := range o.list() {
			e.equal("lane", l.Lane, before[i].Lane)
			e.equal("epoch", l.Epoch, before[i].Epoch)
		}
	}},
	{"P2_renewal_never_shortens", needLanes, func(e *env) {
		o := e.owner()
		o.acquire(1)
		o.ttl = time.Second
		for _, l := range o.acquire(0).Leases {
			if l.ExpiresIn < 5*time.Minute {
				e.Errorf("a renewal for 1 s left %v of 10 minutes", l.ExpiresIn)
			}
		}
	}},
	{"P2_epoch_rises_with_every_acquisition", needLanes, func(e *env) {
		o := e.owner()
		o.acquireAll()
		first := o.list()
		o.release(first...)
		e.equal("lanes after the release", len(o.leases), 0)
		o.acquireAll()
		for i, l := range o.list() {
			if l.Epoch <= first[i].Epoch {
				e.Errorf("lane %d: epoch %d after %d", l.Lane, l.Epoch, first[i].Epoch)
			}
		}
		second := o.list()
		o.release(first...) // an old epoch releases nothing
		e.equal("lanes after a release of the old epoch", len(o.leases), len(second))
	}},
	{"P2_clean_release_is_clean", needLanes, func(e *env) {
		a, b := e.owner(), e.owner()
		a.acquireAll()
		released := a.list()[:2]
		b.acquire(0)
		a.release(released...)
		g := b.acquire(2)
		e.equal("lanes", len(g.Leases), 2)
		for i, l := range b.list() {
			e.equal("lane", l.Lane, released[i].Lane)
			if l.Unclean || l.Epoch <= released[i].Epoch {
				e.Errorf("lease %+v after the clean release of %+v", l, released[i])
			}
		}
	}},
	{"P2_unclean_release_is_unclean", needLanes, func(e *env) {
		a, b := e.owner(), e.owner()
		r := e.put("k")
		a.acquireAll()
		row := e.row(r)
		late := a.outcome(row, outbox.SettleFailed)
		given := a.leases
		var some, last []outbox.LaneLease
		for i, l := range a.list() {
			l.Unclean = l.Lane == row.Lane || i%3 == 0
			given[l.Lane] = l
			if l.Lane == row.Lane || i%2 == 0 {
				some = append(some, l)
			} else {
				last = append(last, l)
			}
		}
		taken := func() {
			for n, l := range b.leases {
				if l.Unclean != given[n].Unclean || l.Epoch <= given[n].Epoch {
					e.Errorf("lease %+v after the release of %+v", l, given[n])
				}
			}
		}
		b.acquire(0)
		a.release(some...)
		b.acquire(len(some)) // at once: nobody lives in them
		e.equal("lanes", len(b.leases), min(len(some), b.share.Fair()))
		taken()
		_, err := a.do(outbox.LaneRequest{End: true, Release: last})
		e.ok(err)
		a.ended()
		b.acquireAll()
		taken()
		e.equal("settled by the old owner", a.settle(late), []outbox.SettleResult{outbox.Fenced})
		b.end()
		c := e.owner()
		c.acquireAll()
		for _, l := range c.list() {
			if l.Unclean {
				e.Errorf("lane %d is unclean after a clean hand-over", l.Lane)
			}
		}
	}},
	{"P2_clean_end", needLanes, func(e *env) {
		a, b := e.owner(), e.owner()
		a.acquireAll()
		a.end()
		a.ended()
		b.acquireAll()
		for _, l := range b.list() {
			if l.Unclean {
				e.Errorf("lane %d is unclean after a clean stop", l.Lane)
			}
		}
		e.equal("live relays", b.share.Relays, 1)
	}},
	{"P2_live_lanes_are_not_taken", needLanes, func(e *env) {
		a, b := e.owner(), e.owner()
		a.acquireAll()
		held := len(a.leases)
		g := b.acquire(1 << 20)
		e.equal("lanes of the second relay", len(g.Leases), 0)
		e.equal("relays", b.share.Relays, 2)
		a.acquire(0)
		e.equal("lanes of the first relay", len(a.leases), held)
		e.equal("relays that the first one sees", a.share.Relays, 2)
	}},
	{"P2_fair_share_bounds_acquisition", needLanes, func(e *env) {
		a, b := e.owner(), e.owner()
		a.acquireAll()
		b.acquire(0)
		a.acquire(0)
		fair := (a.share.Lanes + 1) / 2
		e.equal("fair share", a.share.Fair(), fair)
		a.release(a.list()[:len(a.leases)-1]...)
		e.equal("lanes kept", len(a.leases), 1)
		a.acquire(1 << 20)
		e.equal("lanes of the first relay", len(a.leases), fair)
		b.acquire(1 << 20)
		e.equal("lanes of the second relay", len(b.leases), a.share.Lanes-fair)
		for n := range b.leases {
			if _, both := a.leases[n]; both {
				e.Errorf("lane %d has two owners", n)
			}
		}
		b.end()
		a.acquireAll() // the share grows when a relay leaves
	}},
	{"P2_expired_owner_is_taken_over_unclean", needLanes, func(e *env) {
		a, b := e.owner(), e.owner()
		r := e.put("k")
		a.ttl = 3 * time.Second // a slow machine needs it to write the mark
		a.acquireAll()
		row := e.row(r)
		lane := row.Lane
		before := a.leases[lane]
		_, err := a.store.SettleLanes(e.ctx, outbox.SettleRequest{Owner: a.id, TriedTo: []outbox.LaneMark{{Lane: lane, Epoch: before.Epoch, Pos: row.Pos}}})
		e.ok(err)
		e.fix.sleep(a.ttl + 100*time.Millisecond)
		b.acquireAll()
		e.equal("live relays", b.share.Relays, 1)
		for n, l := range b.leases {
			if !l.Unclean || l.Epoch <= a.leases[n].Epoch {
				e.Errorf("lease %+v after the expiry of %+v", l, a.leases[n])
			}
		}
		e.equal("tried to", b.leases[lane].TriedTo, row.Pos)
		// The answer that said so may have been lost: a renewal says it again.
		b.acquire(0)
		e.equal("unclean at the renewal", b.leases[lane].Unclean, true)
		a.ended()
		b.acquire(0)
		e.equal("lanes after the old owner's calls", len(b.leases), b.share.Lanes)
		e.equal("settled by the old owner", a.settle(a.outcome(row, outbox.SettleFailed)), []outbox.SettleResult{outbox.Fenced})
		b.end()
		c := e.owner()
		c.acquireAll()
		e.equal("unclean after a clean hand-over", c.leases[lane].Unclean, false)
		e.equal("tried to after a clean hand-over", c.leases[lane].TriedTo, row.Pos)
	}},
	{"P2_expired_window_is_never_reopened", needLanes, func(e *env) {
		a := e.owner()
		a.ttl = time.Second
		a.acquireAll()
		e.fix.sleep(1100 * time.Millisecond)
		a.ended() // nobody has taken a lane meanwhile
		r := e.put("k")
		e.claim(r.ID, e.now, e.now.Add(time.Minute)) // its lane is free for claims (C11)
		b := e.owner()
		b.acquireAll()
		a.ended()
	}},
	{"P2_renewal_keeps_the_window_open", needLanes, func(e *env) {
		a, b := e.owner(), e.owner()
		a.ttl = 3 * time.Second // with room for a slow machine
		a.acquireAll()
		for range 3 {
			e.fix.sleep(1100 * time.Millisecond)
			a.acquire(0)
		}
		e.equal("lanes of another relay", len(b.acquire(100).Leases), 0)
	}},
	{"P2_concurrent_relays_never_share_a_lane", needLanes, func(e *env) {
		stores := e.others(4)
		owners := make([]*owner, len(stores))
		for i, s := range stores {
			owners[i] = e.owner()
			if ls, ok := s.(outbox.LaneStore); ok {
				owners[i].store = ls
			}
		}
		var mu sync.Mutex
		epochs := map[string]outbox.ID{}
		check := func(o *owner) {
			mu.Lock()
			defer mu.Unlock()
			for _, l := range o.leases {
				k := fmt.Sprint(l.Lane, "/", l.Epoch)
				if other, ok := epochs[k]; ok && other != o.id {
					e.Errorf("lane/epoch %s was granted to %s and %s", k, other, o.id)
				}
				epochs[k] = o.id
			}
		}
		round := func(want int) {
			fns := make([]func(), len(owners))
			for i, o := range owners {
				fns[i] = func() {
					r := outbox.LaneRequest{Want: want}
					if over := len(o.leases) - o.share.Fair(); o.share.Relays > 0 && over > 0 {
						r = outbox.LaneRequest{Release: o.list()[:over]}
					}
					if _, err := o.do(r); err != nil {
						e.Errorf("AcquireLanes: %v", err)
						return
					}
					check(o)
				}
			}
			together(fns...)
		}
		for range 6 {
			round(1 << 20)
		}
		total := 0
		for _, o := range owners {
			e.equal("relays", o.share.Relays, len(owners))
			if len(o.leases) > o.share.Fair() {
				e.Errorf("a relay holds %d lanes, fair share %d", len(o.leases), o.share.Fair())
			}
			total += len(o.leases)
		}
		e.equal("lanes held", total, owners[0].share.Lanes)
	}},
	{"P2_routes_are_leased_apart", needRouter, func(e *env) {
		s := e.lanes()
		if s == nil {
			e.Skip("no LaneStore")
		}
		routes, err := e.store.(outbox.Router).Routes(e.ctx)
		e.ok(err)
		o := e.owner()
		o.acquireAll()
		r, _ := e.route()
		for n, l := range o.leases {
			if l.Route != r.Name || n < r.First || n >= r.First+outbox.Lane(r.Lanes()) {
				e.Errorf("lease %+v is not of route %+v", l, r)
			}
		}
		for _, other := range routes {
			if other.Name == r.Name {
				continue
			}
			g, err := s.AcquireLanes(e.ctx, outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{other.Name}, Want: 1 << 20, TTL: time.Minute})
			e.ok(err)
			e.equal("lanes of route "+other.Name, len(g.Leases), other.Lanes())
		}
	}},
	{"P2_sessions_serve_the_lanes", needSession, func(e *env) {
		r := e.put("k")
		o := e.owner()
		for _, purpose := range []string{"lease", "read", "settle", "sweep"} {
			s, err := e.store.(outbox.LaneSessioner).LaneSession(e.ctx, purpose)
			e.ok(err)
			o.store = s
			o.acquireAll()
			dst := make([]outbox.LaneRow, 8)
			n, err := s.ReadLanes(e.ctx, []outbox.LaneRead{{Lane: e.laneOf("k")}}, dst)
			e.ok(err)
			e.equal("rows", n, 1)
			_, _, err = s.PromoteLanes(e.ctx, o.list(), dst)
			e.ok(err)
			if purpose == "sweep" {
				e.equal("settled", o.settle(o.outcome(dst[0], outbox.SettleAccepted)), []outbox.SettleResult{outbox.Settled})
			}
			e.ok(s.Close())
		}
		e.equal("eligible", e.eligible(r, e.now), false)
	}},
}
