package sqlcore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// CommitsInOrder tells whether the engine has one writer at a time.
func (s *Store) CommitsInOrder() bool { return s.d.inOrder }

// forgetAfter is how long the row of an owner that is gone is kept. Its lanes
// have other owners by then.
const forgetAfter = 7 * 24 * time.Hour

// AcquireLanes implements outbox.LaneStore.
//
// It locks lanes in lane order, then windows, and judges every expiry by the
// clock after the locks. Otherwise a renewal that began before the expiry and
// committed after it, beside a take-over that saw the expiry, would make two
// owners. What another call has locked is left for the next round, so that two
// relays that take each other's lanes cannot block one another.
func (h handle) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (g outbox.LaneGrant, err error) {
	switch {
	case r.Owner == (outbox.ID{}):
		return g, invalid("lane owner is zero: use outbox.NewID")
	case r.TTL < time.Second:
		return g, invalid("lane TTL %v is too short, limit 1 s", r.TTL)
	case r.Want < 0:
		return g, invalid("lanes wanted: %d is negative", r.Want)
	}
	a := acquisition{h: h, r: r}
	for _, name := range r.Routes {
		rt, err := h.s.route(ctx, name)
		if err != nil {
			return g, h.s.wrap(ctx, "acquire lanes", err)
		}
		if !slices.ContainsFunc(a.routes, func(o outbox.Route) bool { return o.Name == rt.Name }) {
			a.routes = append(a.routes, rt.Route)
		}
	}
	err = h.write(ctx, "acquire lanes", func(q Querier) error {
		g, err = a.run(ctx, q)
		return err
	})
	if err != nil {
		return outbox.LaneGrant{}, err
	}
	return g, nil
}

// acquisition is one call of AcquireLanes.
type acquisition struct {
	h      handle
	r      outbox.LaneRequest
	routes []outbox.Route
}

// candidate is a lane that seemed free.
type candidate struct {
	lane   int64
	old    idColumn // its owner, if it was not given back
	window bool     // that one has a row in the table relays
}

// window is a row of the table relays.
type window struct {
	expires int64
	ended   bool
}

func (a *acquisition) run(ctx context.Context, q Querier) (g outbox.LaneGrant, err error) {
	s, r := a.h.s, a.r
	shares, held, err := a.shares(ctx, q)
	if err != nil {
		return g, err
	}
	release, unclean, err := a.lockReleases(ctx, q)
	if err != nil {
		return g, err
	}
	candidates, err := a.lockCandidates(ctx, q, shares, held, slices.Concat(release, unclean))
	if err != nil {
		return g, err
	}
	own, err := a.lockOwn(ctx, q)
	if err != nil {
		return g, err
	}
	old, err := a.lockOld(ctx, q, candidates)
	if err != nil {
		return g, err
	}
	var now int64
	if err := queryRow(ctx, q, s.q.Now, nil, &now); err != nil {
		return g, err
	}
	if own != nil && (own.ended || own.expires <= now) {
		return g, fmt.Errorf("owner %s: %w: take lanes again under a new owner id", r.Owner, outbox.ErrOwnerEnded)
	}
	expires, err := a.renew(ctx, q, own, now)
	if err != nil {
		return g, err
	}
	// An unclean lane goes to an owner that never lived: whoever takes it next takes
	// it from that one.
	for _, give := range []struct {
		lanes []int64
		query string
		owner outbox.ID
	}{{release, s.q.ReleaseLanes, r.Owner}, {unclean, s.q.TakeLanes, outbox.NewID()}} {
		if len(give.lanes) == 0 {
			continue
		}
		w := s.Rows(1)
		for _, n := range give.lanes {
			w.Int(n)
		}
		if _, err := q.Exec(ctx, give.query, append(w.Args(), s.d.id(give.owner))...); err != nil {
			return g, err
		}
	}
	if !r.End {
		if err := a.take(ctx, q, candidates, old, now); err != nil {
			return g, err
		}
	}
	g = outbox.LaneGrant{Now: time.UnixMicro(now).UTC(), Shares: shares}
	err = q.Query(ctx, s.q.Leases, []any{s.d.id(r.Owner)}, func(rows Row) error {
		l := outbox.LaneLease{Owner: r.Owner, ExpiresIn: time.Duration(expires-now) * time.Microsecond}
		unclean, dead := 0, 0
		err := rows.Scan(&l.Lane, &l.Route, &l.Epoch, &l.Config, &unclean, &l.TriedTo, &dead)
		l.Unclean, l.Dead = unclean != 0, dead != 0
		g.Leases = append(g.Leases, l)
		return err
	})
	return g, err
}

// shares counts the live relays of each route, the caller included, and the
// lanes that the caller has.
func (a *acquisition) shares(ctx context.Context, q Querier) (shares []outbox.LaneShare, held []int, err error) {
	s := a.h.s
	for _, rt := range a.routes {
		share := outbox.LaneShare{Route: rt.Name, Lanes: rt.Lanes()}
		if !a.r.End {
			share.Relays = 1
		}
		shares = append(shares, share)
	}
	held = make([]int, len(a.routes))
	err = q.Query(ctx, s.q.LiveRelays, nil, func(rows Row) error {
		var owner idColumn
		var list textColumn
		var expires, now int64
		if err := rows.Scan(&owner, &list, &expires, &now); err != nil {
			return err
		}
		if owner.id == a.r.Owner {
			return nil
		}
		var names []string
		if err := json.Unmarshal([]byte(list), &names); err != nil {
			return fmt.Errorf("routes of relay %s: %w", owner.id, err)
		}
		for i := range shares {
			if slices.Contains(names, shares[i].Route) {
				shares[i].Relays++
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = q.Query(ctx, s.q.HeldLanes, []any{s.d.id(a.r.Owner)}, func(rows Row) error {
		var n outbox.Lane
		err := rows.Scan(&n)
		for i, rt := range a.routes {
			if n >= rt.First && n < rt.First+outbox.Lane(rt.Lanes()) {
				held[i]++
			}
		}
		return err
	})
	return shares, held, err
}

// lockReleases locks the lanes to give back, and returns those that the caller
// still holds: what it names as unclean apart.
func (a *acquisition) lockReleases(ctx context.Context, q Querier) (clean, unclean []int64, err error) {
	s := a.h.s
	owner := s.d.id(a.r.Owner)
	lock := func(query string, args ...any) (lanes []int64, err error) {
		err = q.Query(ctx, query, args, func(rows Row) error {
			var n int64
			err := rows.Scan(&n)
			lanes = append(lanes, n)
			return err
		})
		return lanes, err
	}
	if a.r.End { // first all of them, in lane order
		if clean, err = lock(s.q.LockOwned, owner); err != nil {
			return nil, nil, err
		}
	}
	w, dirty := s.Rows(2), map[int64]bool{}
	named := 0
	for _, l := range a.r.Release {
		if l.Unclean {
			dirty[int64(l.Lane)] = true
		} else if a.r.End {
			continue
		}
		named++
		w.Int(int64(l.Lane))
		w.Int(l.Epoch)
	}
	if named == 0 {
		return clean, nil, nil
	}
	locked, err := lock(s.q.LockLanes, append(w.Args(), owner)...)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range locked {
		if dirty[n] {
			unclean = append(unclean, n)
		} else {
			clean = append(clean, n)
		}
	}
	return slices.DeleteFunc(clean, func(n int64) bool { return slices.Contains(unclean, n) }), unclean, nil
}

// lockCandidates locks up to Want lanes that seem free, never beyond the fair
// share of their route.
func (a *acquisition) lockCandidates(ctx context.Context, q Querier, shares []outbox.LaneShare, held []int, release []int64) (list []candidate, err error) {
	if a.r.End {
		return nil, nil
	}
	for i, rt := range a.routes {
		first, last := int64(rt.First), int64(rt.First)+int64(rt.Lanes())-1
		have := held[i]
		for _, n := range release {
			if n >= first && n <= last {
				have--
			}
		}
		room := min(a.r.Want-len(list), shares[i].Fair()-have)
		if room <= 0 {
			continue
		}
		err := q.Query(ctx, a.h.s.q.Candidates, []any{first, last, int64(room)}, func(rows Row) error {
			var c candidate
			has := 0
			err := rows.Scan(&c.lane, &c.old, &has)
			c.window = has != 0
			list = append(list, c)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (a *acquisition) lockOwn(ctx context.Context, q Querier) (own *window, err error) {
	s := a.h.s
	err = q.Query(ctx, s.q.LockOwner, []any{s.d.id(a.r.Owner)}, func(rows Row) error {
		own = &window{}
		ended := 0
		err := rows.Scan(&own.expires, &ended)
		own.ended = ended != 0
		return err
	})
	return own, err
}

// lockOld locks the windows of the candidates' owners, as far as nobody else
// has.
func (a *acquisition) lockOld(ctx context.Context, q Querier, list []candidate) (map[outbox.ID]window, error) {
	s := a.h.s
	old := map[outbox.ID]window{}
	w := s.Rows(1)
	for _, c := range list {
		if _, seen := old[c.old.id]; c.old.valid && !seen {
			old[c.old.id] = window{}
			w.ID(c.old.id)
		}
	}
	if len(old) == 0 {
		return nil, nil
	}
	clear(old)
	err := q.Query(ctx, s.q.LockOwners, w.Args(), func(rows Row) error {
		var owner idColumn
		var v window
		ended := 0
		err := rows.Scan(&owner, &v.expires, &ended)
		v.ended = ended != 0
		old[owner.id] = v
		return err
	})
	if err != nil {
		return nil, err
	}
	// Only a hand that tidied up, and lanes given back unclean, leave an owner
	// without a window: the lanes are free. One that a concurrent acquisition has
	// just written is found here, for this is a statement of its own.
	known := map[outbox.ID]bool{}
	w = s.Rows(1)
	for _, c := range list {
		if _, locked := old[c.old.id]; c.old.valid && !c.window && !locked && !known[c.old.id] {
			known[c.old.id] = true
			w.ID(c.old.id)
		}
	}
	if len(known) == 0 {
		return old, nil
	}
	for id := range known {
		old[id] = window{ended: true}
	}
	err = q.Query(ctx, s.q.Owners, w.Args(), func(rows Row) error {
		var owner idColumn
		err := rows.Scan(&owner)
		delete(old, owner.id)
		return err
	})
	return old, err
}

// renew writes the caller's window, which never gets shorter.
func (a *acquisition) renew(ctx context.Context, q Querier, own *window, now int64) (expires int64, err error) {
	s := a.h.s
	names := make([]string, len(a.routes))
	for i, rt := range a.routes {
		names[i] = rt.Name
	}
	list, err := json.Marshal(names)
	if err != nil {
		return 0, err
	}
	expires = now + a.r.TTL.Microseconds()
	args := []any{s.d.id(a.r.Owner), expires, string(list), bit(a.r.End)}
	if own != nil {
		_, err = q.Exec(ctx, s.q.RenewRelay, args...)
		return max(expires, own.expires), err
	}
	if _, err := q.Exec(ctx, s.q.ForgetRelays, now-forgetAfter.Microseconds()); err != nil {
		return 0, err
	}
	_, err = q.Exec(ctx, s.q.AddRelay, args...)
	return expires, err
}

// take makes the candidates the caller's whose old owner, if any, is locked and
// has ended; it ends those that merely expired, so that a renewal that is
// waiting for the lock finds a closed window.
func (a *acquisition) take(ctx context.Context, q Querier, list []candidate, old map[outbox.ID]window, now int64) error {
	s := a.h.s
	lanes, ends := s.Rows(1), s.Rows(1)
	taken, ended := 0, map[outbox.ID]bool{}
	for _, c := range list {
		if c.old.valid {
			v, locked := old[c.old.id]
			if !locked || !v.ended && v.expires > now {
				continue
			}
			if !v.ended && !ended[c.old.id] {
				ended[c.old.id] = true
				ends.ID(c.old.id)
			}
		}
		lanes.Int(c.lane)
		taken++
	}
	if len(ended) > 0 {
		if _, err := q.Exec(ctx, s.q.EndRelays, ends.Args()...); err != nil {
			return err
		}
	}
	if taken == 0 {
		return nil
	}
	_, err := q.Exec(ctx, s.q.TakeLanes, append(lanes.Args(), s.d.id(a.r.Owner))...)
	return err
}

// fence locks the lanes shared that owner holds under these epochs, and returns
// them with their config versions: nobody can acquire them, or raise the
// version, before the transaction ends.
func (s *Store) fence(ctx context.Context, q Querier, owner outbox.ID, epochs map[outbox.Lane]int64) (map[outbox.Lane]int64, error) {
	held := make(map[outbox.Lane]int64, len(epochs))
	if len(epochs) == 0 || owner == (outbox.ID{}) {
		return held, nil
	}
	lanes := make([]outbox.Lane, 0, len(epochs))
	for n := range epochs {
		lanes = append(lanes, n)
	}
	slices.Sort(lanes)
	w := s.Rows(2)
	for _, n := range lanes {
		w.Int(int64(n))
		w.Int(epochs[n])
	}
	err := q.Query(ctx, s.q.Fence, append(w.Args(), s.d.id(owner)), func(rows Row) error {
		var n outbox.Lane
		var config int64
		err := rows.Scan(&n, &config)
		held[n] = config
		return err
	})
	return held, err
}

// fenceLeases does the same for leases, which may have several owners. The
// leases it returns have their lanes' present config versions.
func (s *Store) fenceLeases(ctx context.Context, q Querier, leases []outbox.LaneLease) (held []outbox.LaneLease, err error) {
	owners := map[outbox.ID]map[outbox.Lane]int64{}
	var order []outbox.ID
	for _, l := range leases {
		if owners[l.Owner] == nil {
			owners[l.Owner] = map[outbox.Lane]int64{}
			order = append(order, l.Owner)
		}
		owners[l.Owner][l.Lane] = l.Epoch
	}
	valid := map[outbox.ID]map[outbox.Lane]int64{}
	for _, owner := range order {
		if valid[owner], err = s.fence(ctx, q, owner, owners[owner]); err != nil {
			return nil, err
		}
	}
	done := map[outbox.Lane]bool{}
	for _, l := range leases {
		if config, ok := valid[l.Owner][l.Lane]; ok && owners[l.Owner][l.Lane] == l.Epoch && !done[l.Lane] {
			done[l.Lane] = true
			l.Config = config
			held = append(held, l)
		}
	}
	return held, nil
}
