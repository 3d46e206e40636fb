package sqlcore

import (
	"bytes"
	"context"
	"math"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// Inspect implements outbox.Inspector. All counts are exact: their cost grows
// with the backlog, about a second for some millions of rows. The parts are
// read one after another and need not fit together to the row.
func (s *Store) Inspect(ctx context.Context, now time.Time) (o outbox.Overview, err error) {
	t, err := s.loadRoutes(ctx)
	if err != nil {
		return o, err
	}
	err = s.read(ctx, "inspect", func(q Querier) error {
		o, err = s.inspect(ctx, q, now, t)
		return err
	})
	return o, err
}

func (s *Store) inspect(ctx context.Context, q Querier, now time.Time, t *routeTable) (o outbox.Overview, err error) {
	m, err := s.meta(ctx, q)
	if err != nil {
		return o, err
	}
	o.Schema = m.version
	var us int64
	if err := queryRow(ctx, q, s.q.Now, nil, &us); err != nil {
		return o, err
	}
	o.Now = time.UnixMicro(us).UTC()
	for _, r := range t.list {
		v := outbox.RouteOverview{Route: r}
		first, last := int64(r.First), int64(r.First)+int64(r.Lanes())-1
		if v.Pending, v.OldestPending, err = s.count(ctx, q, now, first, last); err != nil {
			return o, err
		}
		if err := queryRow(ctx, q, s.q.CountAside, []any{first, last}, &v.Deferred); err != nil {
			return o, err
		}
		if err := queryRow(ctx, q, s.q.CountParked, []any{first, last}, &v.ParkedKeys); err != nil {
			return o, err
		}
		if v.Dead, err = s.countDead(ctx, q, r.Name); err != nil {
			return o, err
		}
		o.Routes = append(o.Routes, v)
	}
	if o.Stray, err = s.stray(ctx, q, now, t); err != nil {
		return o, err
	}
	return o, s.inspectRelays(ctx, q, &o)
}

// stray counts the rows below, between and above the routes.
func (s *Store) stray(ctx context.Context, q Querier, now time.Time, t *routeTable) (n int64, err error) {
	next := int64(math.MinInt32)
	for i := range len(t.list) + 1 {
		end, after := int64(math.MaxInt32), int64(0)
		if i < len(t.list) {
			end = int64(t.list[i].First) - 1
			after = end + 1 + int64(t.list[i].Lanes())
		}
		if next <= end {
			var ready, deferred int64
			var oldest intColumn
			err := queryRow(ctx, q, s.q.CountHot, []any{now.UnixMicro(), next, end}, &ready, &oldest)
			if err == nil {
				err = queryRow(ctx, q, s.q.CountAside, []any{next, end}, &deferred)
			}
			if err != nil {
				return 0, err
			}
			n += ready + deferred
		}
		next = after
	}
	return n, nil
}

func (s *Store) inspectRelays(ctx context.Context, q Querier, o *outbox.Overview) error {
	at := map[outbox.ID]int{}
	err := q.Query(ctx, s.q.LiveRelays, nil, func(rows Row) error {
		var owner idColumn
		var list textColumn
		var expires, now int64
		err := rows.Scan(&owner, &list, &expires, &now)
		o.Relays = append(o.Relays, outbox.RelayOverview{Owner: owner.id, ExpiresIn: time.Duration(expires-now) * time.Microsecond})
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(o.Relays, func(a, b outbox.RelayOverview) int { return bytes.Compare(a.Owner[:], b.Owner[:]) })
	for i, r := range o.Relays {
		at[r.Owner] = i
	}
	return q.Query(ctx, s.q.LaneOwners, nil, func(rows Row) error {
		var n outbox.Lane
		var owner idColumn
		if err := rows.Scan(&n, &owner); err != nil {
			return err
		}
		i, live := at[owner.id]
		if !live {
			return nil
		}
		o.Relays[i].Lanes++
		for j, r := range o.Routes {
			if n >= r.First && n < r.First+outbox.Lane(r.Lanes()) {
				o.Routes[j].Held++
			}
		}
		return nil
	})
}
