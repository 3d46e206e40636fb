package sqlcore

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/postrider/postrider/outbox"
)

// ListDead implements outbox.DeadLetters. A route that does not exist is
// outbox.ErrUnknownRoute.
func (s *Store) ListDead(ctx context.Context, q outbox.DeadQuery, dst []outbox.DeadLetter) (n int, err error) {
	if err := s.checkRoute(ctx, "list dead letters", q.Route); err != nil {
		return 0, err
	}
	var bad outbox.RowError
	after, id := int64(math.MinInt64), q.AfterID
	if !q.AfterTime.IsZero() {
		after = q.AfterTime.UnixMicro()
	}
	for n < len(dst) {
		texts := &s.q.ListDead
		if q.Route != "" {
			texts = &s.q.ListDeadOf
		}
		text, limit := texts.at(len(dst) - n)
		args := []any{after, s.d.id(id), bit(q.WithoutBody)}
		if q.Route != "" {
			args = append(args, q.Route)
		}
		start, startBad, rows := n, len(bad.IDs), 0
		err := s.read(ctx, "list dead letters", func(qr Querier) error {
			n, bad.IDs, bad.Errs, rows = start, bad.IDs[:startBad], bad.Errs[:startBad], 0
			var r row
			var first, died intColumn
			var reason textColumn
			var later int64
			into := r.dest(nil, &first, &reason, &died, &later)
			return qr.Query(ctx, text, args, func(sr Row) error {
				if n == len(dst) {
					return nil
				}
				if err := sr.Scan(into...); err != nil {
					return err
				}
				rows++
				after, id = died.Int64, r.id.id
				rec, err := r.record()
				if err != nil {
					bad.IDs, bad.Errs = append(bad.IDs, r.id.id), append(bad.Errs, err)
				}
				dst[n] = outbox.DeadLetter{
					Record: rec, Lane: outbox.Lane(r.lane), Pos: r.pos, Reason: string(reason), FirstFailedAt: instant(first), DiedAt: instant(died),
					LaterOut: later,
				}
				n++
				return nil
			})
		})
		if err != nil {
			return n, err
		}
		if rows < limit {
			break
		}
	}
	if len(bad.IDs) > 0 {
		return n, &bad
	}
	return n, nil
}

func (s *Store) checkRoute(ctx context.Context, what, name string) error {
	if name == "" {
		return nil
	}
	_, err := s.route(ctx, name)
	return s.wrap(what, err)
}

// CountDead implements outbox.DeadLetters. It is exact.
func (s *Store) CountDead(ctx context.Context, route string) (n int64, err error) {
	if err := s.checkRoute(ctx, "count dead letters", route); err != nil {
		return 0, err
	}
	err = s.read(ctx, "count dead letters", func(q Querier) error {
		n, err = s.countDead(ctx, q, route)
		return err
	})
	return n, err
}

func (s *Store) countDead(ctx context.Context, q Querier, route string) (n int64, err error) {
	text, args := s.q.CountDead, []any(nil)
	if route != "" {
		text, args = s.q.CountDeadOf, []any{route}
	}
	err = queryRow(ctx, q, text, args, &n)
	return n, err
}

func distinct(ids []outbox.ID) (list []outbox.ID) {
	seen := make(map[outbox.ID]bool, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			list = append(list, id)
		}
	}
	return list
}

func (s *Store) idRows(ids []outbox.ID) []any {
	w := s.Rows(1)
	for _, id := range ids {
		w.ID(id)
	}
	return w.Args()
}

// ReplayDead implements outbox.DeadLetters. The rows come back without an
// attempt, an error or a retry time. All of it is one transaction.
func (s *Store) ReplayDead(ctx context.Context, by string, ids ...outbox.ID) (res outbox.ReplayResult, err error) {
	// Before the transaction, which may take the pool's only connection.
	t, err := s.loadRoutes(ctx)
	if err != nil {
		return res, err
	}
	err = s.write(ctx, "replay dead letters", func(q Querier) error {
		res = outbox.ReplayResult{}
		for part := range slices.Chunk(distinct(ids), chunkRows) {
			if err := s.replay(ctx, q, t, part, &res); err != nil {
				return err
			}
		}
		return s.audit(ctx, q, by, "replay", int64(res.Replayed), "")
	})
	if err != nil {
		return outbox.ReplayResult{}, err
	}
	return res, nil
}

func (s *Store) replay(ctx context.Context, q Querier, t *routeTable, ids []outbox.ID, res *outbox.ReplayResult) error {
	type letter struct {
		lane  int64
		route string
	}
	dead := make(map[outbox.ID]letter, len(ids))
	err := q.Query(ctx, s.q.FindDead, s.idRows(ids), func(rows Row) error {
		var id idColumn
		var l letter
		var name textColumn
		err := rows.Scan(&id, &l.lane, &name)
		l.route = string(name)
		dead[id.id] = l
		return err
	})
	if err != nil {
		return err
	}
	byRoute := map[string][]outbox.ID{}
	var routes []string
	for _, id := range ids {
		l, ok := dead[id]
		if !ok {
			res.Missing = append(res.Missing, id)
			continue
		}
		if byRoute[l.route] == nil {
			routes = append(routes, l.route)
		}
		byRoute[l.route] = append(byRoute[l.route], id)
	}
	pending := map[outbox.ID]bool{}
	for _, name := range routes {
		r, ok := t.byName[name]
		if !ok {
			return fmt.Errorf("%w %.80q of a dead letter: the store does not have it", outbox.ErrUnknownRoute, name)
		}
		err := q.Query(ctx, s.q.PendingIDs, append(s.idRows(byRoute[name]), r.lanes), func(rows Row) error {
			var id idColumn
			err := rows.Scan(&id)
			pending[id.id] = true
			return err
		})
		if err != nil {
			return err
		}
	}
	var open []outbox.ID
	lanes, w := map[int64]bool{}, s.Rows(1)
	for _, id := range ids {
		l, ok := dead[id]
		switch {
		case !ok:
		case pending[id]:
			res.Conflicts = append(res.Conflicts, id)
		default:
			open = append(open, id)
			if !lanes[l.lane] {
				lanes[l.lane] = true
				w.Int(l.lane)
			}
		}
	}
	if len(open) == 0 {
		return nil
	}
	// The owner's cursor has passed the old positions: the config version tells
	// it to look again. The lanes are locked before the rows, as everywhere.
	if _, err := q.Exec(ctx, s.q.RaiseConfig, w.Args()...); err != nil {
		return err
	}
	back := make(map[outbox.ID]bool, len(open))
	err = q.Query(ctx, s.q.Replay, s.idRows(open), func(rows Row) error {
		var id idColumn
		err := rows.Scan(&id)
		back[id.id] = true
		return err
	})
	if err != nil {
		return err
	}
	var done []outbox.ID
	for _, id := range open {
		if back[id] {
			done = append(done, id)
		} else {
			res.Conflicts = append(res.Conflicts, id)
		}
	}
	res.Replayed += len(done)
	// Counted as of the deletion, which waits for who counts on beside it.
	return q.Query(ctx, s.q.DropPlayed, s.idRows(done), func(rows Row) error {
		var later int64
		err := rows.Scan(&later)
		res.LaterOut += later
		return err
	})
}

// DiscardDead implements outbox.DeadLetters.
func (s *Store) DiscardDead(ctx context.Context, by string, ids ...outbox.ID) (n int, err error) {
	err = s.write(ctx, "discard dead letters", func(q Querier) error {
		n = 0
		for part := range slices.Chunk(distinct(ids), chunkRows) {
			some, err := q.Exec(ctx, s.q.DropDead, s.idRows(part)...)
			if err != nil {
				return err
			}
			n += int(some)
		}
		return s.audit(ctx, q, by, "discard", int64(n), "")
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
