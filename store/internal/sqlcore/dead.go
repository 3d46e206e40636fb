package sqlcore

import (
	"context"
	"fmt"
	"maps"
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
			args = append(args, s.name(q.Route))
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
	return s.wrap(ctx, what, err)
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
		text, args = s.q.CountDeadOf, []any{s.name(route)}
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
		later := map[laneKey]int64{}
		for part := range slices.Chunk(distinct(ids), chunkRows) {
			done, err := s.replay(ctx, q, t, part, &res, later)
			if err != nil {
				return err
			}
			if err := s.auditIDs(ctx, q, by, "replay", done); err != nil {
				return err
			}
		}
		for _, n := range later {
			res.LaterOut += n
		}
		return nil
	})
	if err != nil {
		return outbox.ReplayResult{}, err
	}
	return res, nil
}

// letter is a dead letter that is locked.
type letter struct {
	laneKey
	route string
	later int64
}

// lockDead locks those of the ids that are among the dead, where the engine
// locks rows, and tells what they are once whoever held them has let go.
func (s *Store) lockDead(ctx context.Context, q Querier, ids []outbox.ID) (map[outbox.ID]letter, error) {
	dead := make(map[outbox.ID]letter, len(ids))
	err := q.Query(ctx, s.q.LockDead, s.idRows(ids), func(rows Row) error {
		var id idColumn
		var l letter
		var name textColumn
		var key bytesColumn
		err := rows.Scan(&id, &l.lane, &name, &key, &l.later)
		l.route, l.key = string(name), string(key)
		dead[id.id] = l
		return err
	})
	return dead, err
}

// replay returns the ids that are back. later takes, for each of their keys, how
// many messages of it are out behind the first one that came back.
func (s *Store) replay(ctx context.Context, q Querier, t *routeTable, ids []outbox.ID, res *outbox.ReplayResult, later map[laneKey]int64) (done []outbox.ID, err error) {
	// The owner's cursor has passed the old positions: the config version tells
	// it to look again. The lanes are locked before the rows, as everywhere.
	lanes := map[int64]bool{}
	err = q.Query(ctx, s.q.LanesOfDead, s.idRows(ids), func(rows Row) error {
		var lane int64
		err := rows.Scan(&lane)
		lanes[lane] = true
		return err
	})
	if err == nil && len(lanes) > 0 {
		w := s.Rows(1)
		for _, lane := range slices.Sorted(maps.Keys(lanes)) {
			w.Int(lane)
		}
		_, err = q.Exec(ctx, s.q.RaiseConfig, w.Args()...)
	}
	if err != nil {
		return nil, err
	}
	// A discard or another replay may have taken them until here.
	dead, err := s.lockDead(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	byRoute := map[string][]outbox.ID{}
	for _, id := range ids {
		if l, ok := dead[id]; ok {
			byRoute[l.route] = append(byRoute[l.route], id)
		} else {
			res.Missing = append(res.Missing, id)
		}
	}
	pending := map[outbox.ID]bool{}
	for _, name := range slices.Sorted(maps.Keys(byRoute)) {
		r, ok := t.byName[name]
		if !ok {
			return nil, fmt.Errorf("%w %.80q of a dead letter: the store does not have it", outbox.ErrUnknownRoute, name)
		}
		err := q.Query(ctx, s.q.PendingIDs, append(s.idRows(byRoute[name]), r.lanes), func(rows Row) error {
			var id idColumn
			err := rows.Scan(&id)
			pending[id.id] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	open := slices.DeleteFunc(slices.Clone(ids), func(id outbox.ID) bool { _, ok := dead[id]; return !ok || pending[id] })
	back := make(map[outbox.ID]bool, len(open))
	if len(open) > 0 {
		err = q.Query(ctx, s.q.Replay, s.idRows(open), func(rows Row) error {
			var id idColumn
			err := rows.Scan(&id)
			back[id.id] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		l, ok := dead[id]
		switch {
		case !ok:
		case back[id]:
			done = append(done, id)
			later[l.laneKey] = max(later[l.laneKey], l.later)
		default:
			res.Conflicts = append(res.Conflicts, id)
		}
	}
	res.Replayed += len(done)
	if len(done) > 0 {
		_, err = q.Exec(ctx, s.q.DropDead, s.idRows(done)...)
	}
	return done, err
}

// DiscardDead implements outbox.DeadLetters.
func (s *Store) DiscardDead(ctx context.Context, by string, ids ...outbox.ID) (n int, err error) {
	err = s.write(ctx, "discard dead letters", func(q Querier) error {
		n = 0
		for part := range slices.Chunk(distinct(ids), chunkRows) {
			dead, err := s.lockDead(ctx, q, part)
			if err != nil {
				return err
			}
			part = slices.DeleteFunc(slices.Clone(part), func(id outbox.ID) bool { _, ok := dead[id]; return !ok })
			if len(part) == 0 {
				continue
			}
			if _, err := q.Exec(ctx, s.q.DropDead, s.idRows(part)...); err != nil {
				return err
			}
			n += len(part)
			if err := s.auditIDs(ctx, q, by, "discard", part); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
