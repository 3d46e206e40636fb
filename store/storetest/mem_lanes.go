package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

var _ outbox.LaneStore = (*Mem)(nil)

// lane is the row that the fence reads, and the lane's marks.
type lane struct {
	route   string
	owner   outbox.ID // zero: free, given back cleanly
	epoch   int64
	unclean bool  // taken from an owner that expired, or given back so
	config  int64 // raised by operators
	seen    int64 // config that the owner has acted on
	triedTo int64
}

// window is one owner's lease, for all its lanes at once.
type window struct {
	routes  []string
	expires time.Time
	ended   bool // never reopened
}

func (w *window) live(now time.Time) bool { return w != nil && !w.ended && w.expires.After(now) }

// leased reports whether the lane has a live owner.
func (m *Mem) leased(n outbox.Lane) bool { return m.relays[m.lanes[n].owner].live(m.now()) }

// fenced reports whether owner and epoch do not hold the lane. It does not look
// at the expiry: who takes a lane over changes both.
func (m *Mem) fenced(n outbox.Lane, owner outbox.ID, epoch int64) bool {
	l := m.lanes[n]
	return l == nil || owner == (outbox.ID{}) || l.owner != owner || l.epoch != epoch
}

// AcquireLanes implements [outbox.LaneStore].
func (m *Mem) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (g outbox.LaneGrant, err error) {
	switch {
	case r.Owner == (outbox.ID{}):
		return g, invalid("lane owner is zero: use outbox.NewID")
	case r.TTL < time.Second:
		return g, invalid("lane TTL %v is below 1 s", r.TTL)
	case r.Want < 0:
		return g, invalid("lanes wanted: %d is negative", r.Want)
	}
	var routes []outbox.Route
	for _, name := range r.Routes {
		route, err := m.route(name)
		if err != nil {
			return g, err
		}
		if !slices.Contains(routes, route) {
			routes = append(routes, route)
		}
	}
	err = m.write(ctx, "AcquireLanes", func() error {
		// The clock is read after the lock is taken: a renewal that started
		// before the window's end and got the lock after it must not win over
		// a take-over in between.
		now := m.now()
		w := m.relays[r.Owner]
		if w != nil && !w.live(now) {
			return fmt.Errorf("owner %s: %w", r.Owner, outbox.ErrOwnerEnded)
		}
		if w == nil {
			w = &window{}
			m.relays[r.Owner] = w
		}
		w.routes = slices.Clone(r.Routes)
		if until := now.Add(r.TTL); until.After(w.expires) {
			w.expires = until
		}
		for _, l := range r.Release {
			if !m.fenced(l.Lane, r.Owner, l.Epoch) {
				m.lanes[l.Lane].release(l.Unclean)
			}
		}
		if r.End {
			w.ended = true
			for _, l := range m.lanes {
				if l.owner == r.Owner {
					l.release(false)
				}
			}
		}
		g = outbox.LaneGrant{Now: now}
		want := r.Want
		for _, route := range routes {
			share := outbox.LaneShare{Route: route.Name, Lanes: route.Lanes()}
			for _, w := range m.relays {
				if w.live(now) && slices.Contains(w.routes, route.Name) {
					share.Relays++
				}
			}
			g.Shares = append(g.Shares, share)
			if w.ended {
				continue
			}
			room := min(want, share.Fair()-m.held(route, r.Owner))
			for n := route.First; n < route.First+outbox.Lane(route.Lanes()) && room > 0; n++ {
				if m.acquire(n, r.Owner, now) {
					room--
					want--
				}
			}
		}
		for n, l := range m.lanes {
			if l.owner == r.Owner {
				g.Leases = append(g.Leases, outbox.LaneLease{
					Lane: n, Route: l.route, Owner: r.Owner, Epoch: l.epoch, ExpiresIn: w.expires.Sub(now),
					Config: l.config, TriedTo: l.triedTo, Unclean: l.unclean, Dead: m.hasDead(n),
				})
			}
		}
		slices.SortFunc(g.Leases, func(a, b outbox.LaneLease) int { return int(a.Lane - b.Lane) })
		return nil
	})
	return g, err
}

// release gives the lane back. An unclean one goes to an owner that never lived:
// whoever takes it next takes it from that one.
func (l *lane) release(unclean bool) {
	l.owner, l.unclean = outbox.ID{}, false
	if unclean {
		l.owner = outbox.NewID()
		l.epoch++
	}
}

// held counts the lanes of the route that the owner has.
func (m *Mem) held(route outbox.Route, owner outbox.ID) (n int) {
	for _, l := range m.lanes {
		if l.route == route.Name && l.owner == owner {
			n++
		}
	}
	return n
}

// acquire takes the lane if nobody lives in it. The old owner is ended in the
// same transaction: its renewal, if one is under way, finds a window that has
// ended, so the lane never has two owners.
func (m *Mem) acquire(n outbox.Lane, owner outbox.ID, now time.Time) bool {
	l := m.lanes[n]
	old := m.relays[l.owner]
	if old.live(now) {
		return false
	}
	if old != nil {
		old.ended = true
	}
	l.unclean = l.owner != outbox.ID{}
	l.owner = owner
	l.epoch++
	return true
}

// ReadLanes implements [outbox.LaneStore]. Each key of a read that names keys
// counts as a read of its own when the limit is worked out; fewer slots than
// that is outbox.ErrInvalidArgument.
func (m *Mem) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (n int, err error) {
	ranges := 0
	for _, rd := range reads {
		ranges += max(1, len(rd.Keys))
		if m.lanes[rd.Lane] == nil {
			return 0, invalid("lane %d does not exist", rd.Lane)
		}
	}
	if ranges == 0 {
		return 0, nil
	}
	limit := outbox.LaneLimit(len(dst), ranges)
	if limit == 0 {
		return 0, invalid("%d slots for %d reads: give every read at least one", len(dst), ranges)
	}
	err = m.read(ctx, "ReadLanes", func() error {
		now := m.now()
		for _, rd := range reads {
			// Rows at or below the cursor that still lie here: in flight, blocked,
			// or committed after the cursor had passed them.
			below := map[string]int64{}
			for _, r := range m.hot[rd.Lane] {
				if r.pos > rd.After {
					break
				}
				if r.keyed() {
					below[string(r.rec.Message.Key)] = r.pos
				}
			}
			taken := map[string]int{} // rows so far, by key where the read names keys
			for _, r := range m.hot[rd.Lane].above(rd.After) {
				if rd.UpTo != 0 && r.pos > rd.UpTo {
					break
				}
				counter := ""
				if len(rd.Keys) > 0 {
					if !slices.ContainsFunc(rd.Keys, func(k []byte) bool { return r.keyed() && string(k) == string(r.rec.Message.Key) }) {
						continue
					}
					counter = string(r.rec.Message.Key)
				}
				if taken[counter] == limit {
					continue
				}
				taken[counter]++
				dst[n] = m.laneRow(r, now)
				if prev := below[string(r.rec.Message.Key)]; prev > rd.SeenUpTo(dst[n].KeyHash) {
					dst[n].KeyPrev = prev
				}
				n++
			}
		}
		return nil
	})
	return n, err
}

// SweepLanes implements [outbox.LaneStore].
func (m *Mem) SweepLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneSpot) (n int, err error) {
	for _, rd := range reads {
		if m.lanes[rd.Lane] == nil {
			return 0, invalid("lane %d does not exist", rd.Lane)
		}
		if rd.Keys != nil {
			return 0, invalid("the sweep of lane %d names keys: read them", rd.Lane)
		}
	}
	if len(reads) == 0 {
		return 0, nil
	}
	limit := outbox.LaneLimit(len(dst), len(reads))
	if limit == 0 {
		return 0, invalid("%d slots for %d reads: give every read at least one", len(dst), len(reads))
	}
	err = m.read(ctx, "SweepLanes", func() error {
		for _, rd := range reads {
			most := n + limit
			for _, r := range m.hot[rd.Lane].above(rd.After) {
				if n == most || rd.UpTo != 0 && r.pos > rd.UpTo {
					break
				}
				dst[n] = outbox.LaneSpot{Lane: r.lane, Pos: r.pos, ID: r.rec.ID, Size: len(r.rec.Message.Body)}
				if r.keyed() {
					dst[n].KeyHash = outbox.KeyHash(r.rec.Message.Key)
				}
				n++
			}
		}
		return nil
	})
	return n, err
}

func (m *Mem) laneRow(r *row, now time.Time) outbox.LaneRow {
	rec, err := m.decode(r)
	lr := outbox.LaneRow{Lane: r.lane, Pos: r.pos, Record: rec, RetryAt: r.retryAt, Claimed: r.claimLive(now), Err: err}
	if r.keyed() {
		lr.KeyHash = outbox.KeyHash(r.rec.Message.Key)
	}
	return lr
}

// SettleLanes implements [outbox.LaneStore].
//
// A settlement finds its row in the hot range or moved aside, as its key may
// have been parked while the message was in flight. An unkeyed row has no key
// to park: parked, it becomes a dead letter.
func (m *Mem) SettleLanes(ctx context.Context, r outbox.SettleRequest) (res []outbox.SettleResult, err error) {
	if r.Owner == (outbox.ID{}) {
		return nil, invalid("owner of the settlements is zero")
	}
	for i, s := range r.Settlements {
		switch {
		case s.ID == (outbox.ID{}):
			return nil, invalid("settlement %d has a zero id", i)
		case s.Outcome < outbox.SettleAccepted || s.Outcome > outbox.SettleCount:
			return nil, invalid("settlement %d of %s: outcome %d is unknown", i, s.ID, s.Outcome)
		case s.Outcome != outbox.SettleAccepted && s.Reason == "":
			return nil, invalid("settlement %d of %s: a reason is required", i, s.ID)
		case s.TakeBack && (s.Attempt || s.Attempts == 0 || s.Outcome == outbox.SettleAccepted):
			return nil, invalid("settlement %d of %s: TakeBack needs an attempt to take back and excludes Attempt and accepted", i, s.ID)
		case s.Later && s.Outcome != outbox.SettleAccepted:
			return nil, invalid("settlement %d of %s: Later is for accepted rows, the outcome is %d", i, s.ID, s.Outcome)
		}
	}
	err = m.write(ctx, "SettleLanes", func() error {
		var out []*row
		for _, s := range r.Settlements {
			row := m.rows[s.ID]
			res = append(res, m.settle(r.Owner, s))
			if s.Later && res[len(res)-1] == outbox.Settled {
				out = append(out, row)
			}
		}
		// Last: what dies in this call counts what is accepted in it, whatever
		// their order.
		m.countLater(out)
		for _, t := range r.TriedTo {
			if !m.fenced(t.Lane, r.Owner, t.Epoch) {
				m.lanes[t.Lane].triedTo = max(m.lanes[t.Lane].triedTo, t.Pos)
			}
		}
		return nil
	})
	return res, err
}

func (m *Mem) settle(owner outbox.ID, s outbox.Settlement) outbox.SettleResult {
	r := m.rows[s.ID]
	if r != nil && (r.lane != s.Lane || r.pos != s.Pos) {
		r = nil
	}
	if s.Outcome == outbox.SettleAccepted {
		// Without a fence: the message is out, whoever owns the lane now.
		if r == nil {
			return outbox.Gone
		}
		m.take(r)
		return outbox.Settled
	}
	if m.fenced(s.Lane, owner, s.Epoch) {
		return outbox.Fenced
	}
	// Another count of attempts: this outcome was written already and the
	// caller repeats it because the answer was lost.
	if r == nil || r.rec.Attempts != s.Attempts {
		return outbox.Gone
	}
	if s.Outcome == outbox.SettlePark && r.keyed() && s.Config != m.lanes[s.Lane].config {
		return outbox.Gone
	}
	if s.TakeBack {
		r.rec.Attempts--
	}
	switch {
	case s.Outcome == outbox.SettleFailed:
		m.fail(r, s.Attempt, s.Reason, s.RetryAt)
	case s.Outcome == outbox.SettleCount:
		m.spend(r, s.Attempt, s.Reason)
		r.retryAt = time.Time{}
	case s.Outcome == outbox.SettlePark && r.keyed():
		m.spend(r, s.Attempt, s.Reason)
		r.retryAt = time.Time{}
		m.setAside(r)
		m.park(r.lane, r.rec.Message.Key, "relay", r.rec.LastError)
	default:
		m.bury(r, s.Attempt, s.Reason)
	}
	return outbox.Settled
}

// PromoteLanes implements [outbox.LaneStore]. It does not look at parked keys:
// their rows become hot and are moved aside like any other. The case of an id
// that is hot already cannot arise here.
func (m *Mem) PromoteLanes(ctx context.Context, leases []outbox.LaneLease, dst []outbox.LaneRow) (n int, nextDue time.Time, err error) {
	err = m.write(ctx, "PromoteLanes", func() error {
		now := m.now()
		for _, l := range leases {
			if m.fenced(l.Lane, l.Owner, l.Epoch) {
				continue
			}
			waiting := slices.Clone(m.deferred[l.Lane])
			slices.SortStableFunc(waiting, func(a, b *row) int { return a.due().Compare(b.due()) })
			for _, r := range waiting {
				if r.aside {
					continue
				}
				ready := r.due()
				if r.claimLive(now) && r.claimed.After(ready) {
					ready = r.claimed
				}
				if ready.After(now) || n == len(dst) {
					if nextDue.IsZero() || ready.Before(nextDue) {
						nextDue = ready
					}
					continue
				}
				m.take(r)
				m.pos++
				r.pos = m.pos
				m.put(r, false)
				dst[n] = m.laneRow(r, now)
				n++
			}
		}
		return nil
	})
	return n, nextDue, err
}
