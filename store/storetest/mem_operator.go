package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

var (
	_ outbox.DeadLetters = (*Mem)(nil)
	_ outbox.Parker      = (*Mem)(nil)
	_ outbox.LaneParker  = (*Mem)(nil)
	_ outbox.Confirmer   = (*Mem)(nil)
	_ outbox.Inspector   = (*Mem)(nil)
)

// AuditEntry is one operator command.
type AuditEntry struct {
	By    string
	At    time.Time
	What  string // "park", "unpark", "replay", "discard"
	Count int    // rows or keys that it changed, never 0
}

// Audit returns what operators did, oldest first.
func (m *Mem) Audit() []AuditEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.audit)
}

func (m *Mem) note(by, what string, count int) {
	if count == 0 {
		return
	}
	m.audit = append(m.audit, AuditEntry{By: by, At: m.now(), What: what, Count: count})
}

// ConfigSeen returns the config version that the lane's owner has acted on; 0
// for none.
func (m *Mem) ConfigSeen(n outbox.Lane) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.lanes[n]; l != nil {
		return l.seen
	}
	return 0
}

// bury makes the row a dead letter.
func (m *Mem) bury(r *row, attempt bool, reason string) {
	first := r.failedAt
	m.spend(r, attempt, reason)
	m.take(r)
	m.dead[r.rec.ID] = &outbox.DeadLetter{
		Record: r.rec, Lane: r.lane, Pos: r.pos, Reason: r.rec.LastError, FirstFailedAt: first, DiedAt: m.now(),
	}
}

// hasDead reports whether the lane has dead letters with a key.
func (m *Mem) hasDead(n outbox.Lane) bool {
	for _, d := range m.dead {
		if d.Lane == n && d.Record.Message.Key != nil {
			return true
		}
	}
	return false
}

// countLater counts delivered rows for the dead letters of their keys that lie
// before them.
func (m *Mem) countLater(out []*row) {
	for _, r := range out {
		for _, d := range m.dead {
			if r.keyed() && d.Lane == r.lane && bytes.Equal(d.Record.Message.Key, r.rec.Message.Key) && d.Pos < r.pos {
				d.LaterOut++
			}
		}
	}
}

// ListDead implements [outbox.DeadLetters].
func (m *Mem) ListDead(ctx context.Context, q outbox.DeadQuery, dst []outbox.DeadLetter) (n int, err error) {
	if q.Route != "" {
		if _, err := m.route(q.Route); err != nil {
			return 0, err
		}
	}
	var bad outbox.RowError
	err = m.read(ctx, "ListDead", func() error {
		after := func(d *outbox.DeadLetter) int {
			return cmp.Or(d.DiedAt.Compare(q.AfterTime), bytes.Compare(d.Record.ID[:], q.AfterID[:]))
		}
		var found []*outbox.DeadLetter
		for _, d := range m.dead {
			if (q.Route == "" || d.Record.Transport == q.Route) && (q.AfterTime.IsZero() || after(d) > 0) {
				found = append(found, d)
			}
		}
		slices.SortFunc(found, func(a, b *outbox.DeadLetter) int {
			return cmp.Or(a.DiedAt.Compare(b.DiedAt), bytes.Compare(a.Record.ID[:], b.Record.ID[:]))
		})
		for _, d := range found[:min(len(found), len(dst))] {
			rec, err := m.decode(&row{rec: d.Record})
			if err != nil {
				bad.IDs, bad.Errs = append(bad.IDs, rec.ID), append(bad.Errs, err)
			}
			if q.WithoutBody {
				rec.Message.Body = nil
			}
			dst[n] = *d
			dst[n].Record = rec
			n++
		}
		return nil
	})
	if err == nil && len(bad.IDs) > 0 {
		err = &bad
	}
	return n, err
}

// CountDead implements [outbox.DeadLetters].
func (m *Mem) CountDead(ctx context.Context, route string) (n int64, err error) {
	if route != "" {
		if _, err := m.route(route); err != nil {
			return 0, err
		}
	}
	err = m.read(ctx, "CountDead", func() error {
		for _, d := range m.dead {
			if route == "" || d.Record.Transport == route {
				n++
			}
		}
		return nil
	})
	return n, err
}

// ReplayDead implements [outbox.DeadLetters]. The rows come back without an
// attempt, an error or a retry time, in their old order.
func (m *Mem) ReplayDead(ctx context.Context, by string, ids ...outbox.ID) (res outbox.ReplayResult, err error) {
	err = m.write(ctx, "ReplayDead", func() error {
		lanes := map[outbox.Lane]bool{}
		done := map[outbox.ID]bool{}
		later := map[parkedID]int64{}
		for _, id := range ids {
			d := m.dead[id]
			switch {
			case done[id]:
			case d == nil:
				res.Missing = append(res.Missing, id)
			case m.rows[id] != nil:
				res.Conflicts = append(res.Conflicts, id)
			default:
				r := &row{rec: d.Record, lane: d.Lane, pos: d.Pos}
				r.rec.Attempts, r.rec.LastError = 0, ""
				delete(m.dead, id)
				m.put(r, false)
				res.Replayed++
				later[keyOf(r)] = max(later[keyOf(r)], d.LaterOut)
				lanes[r.lane] = true
			}
			done[id] = true
		}
		// The owner's cursor has passed the old positions: the config version
		// tells it to look again.
		for n := range lanes {
			m.lanes[n].config++
		}
		for _, n := range later {
			res.LaterOut += n
		}
		m.note(by, "replay", res.Replayed)
		return nil
	})
	return res, err
}

// DiscardDead implements [outbox.DeadLetters].
func (m *Mem) DiscardDead(ctx context.Context, by string, ids ...outbox.ID) (n int, err error) {
	err = m.write(ctx, "DiscardDead", func() error {
		for _, id := range ids {
			if m.dead[id] != nil {
				delete(m.dead, id)
				n++
			}
		}
		m.note(by, "discard", n)
		return nil
	})
	return n, err
}

// parkedID names a key; the zero value names none.
type parkedID struct {
	lane outbox.Lane
	key  string
}

func keyOf(r *row) parkedID {
	if !r.keyed() {
		return parkedID{}
	}
	return parkedID{r.lane, string(r.rec.Message.Key)}
}

// setAside moves the row of a parked key out of the hot range.
func (m *Mem) setAside(r *row) {
	r.aside = true
	m.move(r, true)
}

// park reports whether the key was not parked, or on its way back.
func (m *Mem) park(n outbox.Lane, key []byte, by, why string) bool {
	id := parkedID{n, string(key)}
	if p := m.parked[id]; p != nil && !p.Unparking {
		return false
	}
	m.parked[id] = &outbox.ParkedKey{Route: m.lanes[n].route, Lane: n, Key: bytes.Clone(key), By: by, At: m.now(), Why: why}
	return true
}

func (m *Mem) keyLane(route string, key []byte) (outbox.Lane, error) {
	r, err := m.route(route)
	if err == nil && len(key) == 0 {
		err = invalid("key is empty: a row without a key cannot be parked")
	}
	if err != nil {
		return 0, err
	}
	return outbox.LaneOf(r, outbox.ID{}, key), nil
}

// ParkKey implements [outbox.Parker].
func (m *Mem) ParkKey(ctx context.Context, k outbox.ParkedKey) (ok bool, err error) {
	n, err := m.keyLane(k.Route, k.Key)
	if err != nil {
		return false, err
	}
	err = m.write(ctx, "ParkKey", func() error {
		if ok = m.park(n, k.Key, k.By, k.Why); ok {
			m.lanes[n].config++
			m.note(k.By, "park", 1)
		}
		return nil
	})
	return ok, err
}

// UnparkKey implements [outbox.Parker]. A key that is on its way back already is
// not parked.
func (m *Mem) UnparkKey(ctx context.Context, route string, key []byte, by string) (ok bool, err error) {
	n, err := m.keyLane(route, key)
	if err != nil {
		return false, err
	}
	err = m.write(ctx, "UnparkKey", func() error {
		if p := m.parked[parkedID{n, string(key)}]; p != nil && !p.Unparking {
			ok = true
			p.Unparking = true
			m.lanes[n].config++
			m.note(by, "unpark", 1)
		}
		return nil
	})
	return ok, err
}

// ParkedKeys implements [outbox.Parker], by lane and key.
func (m *Mem) ParkedKeys(ctx context.Context, lanes []outbox.Lane) (keys []outbox.ParkedKey, err error) {
	err = m.read(ctx, "ParkedKeys", func() error {
		for _, p := range m.parked {
			if lanes == nil || slices.Contains(lanes, p.Lane) {
				k := *p
				k.Key = bytes.Clone(p.Key)
				keys = append(keys, k)
			}
		}
		return nil
	})
	slices.SortFunc(keys, func(a, b outbox.ParkedKey) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), bytes.Compare(a.Key, b.Key))
	})
	return keys, err
}

// MoveParked implements [outbox.LaneParker].
func (m *Mem) MoveParked(ctx context.Context, leases []outbox.LaneLease, limit int) (moved int, done []outbox.ParkedKey, err error) {
	if limit < 1 {
		return 0, nil, invalid("limit of rows to move: %d is not positive", limit)
	}
	err = m.write(ctx, "MoveParked", func() error {
		leases = slices.DeleteFunc(slices.Clone(leases), func(l outbox.LaneLease) bool {
			return m.fenced(l.Lane, l.Owner, l.Epoch) || m.lanes[l.Lane].config != l.Config
		})
		for _, l := range leases {
			for _, r := range slices.Clone(m.hot[l.Lane]) {
				if p := m.parked[keyOf(r)]; moved < limit && p != nil && !p.Unparking {
					m.setAside(r)
					moved++
				}
			}
			left := map[parkedID]bool{}
			for _, r := range slices.Clone(m.deferred[l.Lane]) {
				if p := m.parked[keyOf(r)]; !r.aside || p == nil || !p.Unparking {
					continue
				}
				if moved == limit {
					left[keyOf(r)] = true
					continue
				}
				// Under its old position: a row of the key that was drawn while
				// this one was parked must not overtake it.
				r.aside = false
				m.move(r, false)
				moved++
			}
			for id, p := range m.parked {
				if id.lane == l.Lane && p.Unparking && !left[id] {
					delete(m.parked, id)
					done = append(done, *p)
				}
			}
		}
		if moved == limit {
			return nil
		}
		for _, l := range leases {
			m.lanes[l.Lane].seen = l.Config
		}
		return nil
	})
	slices.SortFunc(done, func(a, b outbox.ParkedKey) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), bytes.Compare(a.Key, b.Key))
	})
	return moved, done, err
}

// Confirmed implements [outbox.Confirmer].
func (m *Mem) Confirmed(ctx context.Context, lanes []outbox.Lane) (ok bool, err error) {
	for _, n := range lanes {
		if m.lanes[n] == nil {
			return false, invalid("lane %d does not exist", n)
		}
	}
	err = m.read(ctx, "Confirmed", func() error {
		ok = !slices.ContainsFunc(lanes, func(n outbox.Lane) bool {
			return m.lanes[n].seen < m.lanes[n].config && m.leased(n)
		})
		return nil
	})
	return ok, err
}

// Inspect implements [outbox.Inspector].
func (m *Mem) Inspect(ctx context.Context, now time.Time) (o outbox.Overview, err error) {
	err = m.read(ctx, "Inspect", func() error {
		o = outbox.Overview{Now: m.now(), Schema: 1}
		for _, route := range m.routes {
			o.Routes = append(o.Routes, outbox.RouteOverview{Route: route})
		}
		of := func(name string) *outbox.RouteOverview {
			i := slices.IndexFunc(o.Routes, func(r outbox.RouteOverview) bool { return r.Name == name })
			return &o.Routes[i]
		}
		for _, r := range m.rows {
			v := of(r.rec.Transport)
			if r.deferred {
				v.Deferred++
			}
			if m.eligible(r, now) {
				v.Pending++
				if v.OldestPending.IsZero() || r.rec.CreatedAt.Before(v.OldestPending) {
					v.OldestPending = r.rec.CreatedAt
				}
			}
		}
		for _, d := range m.dead {
			of(d.Record.Transport).Dead++
		}
		for _, p := range m.parked {
			of(p.Route).ParkedKeys++
		}
		for owner, w := range m.relays {
			if !w.live(o.Now) {
				continue
			}
			relay := outbox.RelayOverview{Owner: owner, ExpiresIn: w.expires.Sub(o.Now)}
			for _, l := range m.lanes {
				if l.owner == owner {
					of(l.route).Held++
					relay.Lanes++
				}
			}
			o.Relays = append(o.Relays, relay)
		}
		slices.SortFunc(o.Relays, func(a, b outbox.RelayOverview) int { return bytes.Compare(a.Owner[:], b.Owner[:]) })
		return nil
	})
	return o, err
}

// String names the store and its size, for test logs.
func (m *Mem) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("Mem(%d rows, %d dead)", len(m.rows), len(m.dead))
}
