package sqlcore

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/postrider/postrider/outbox"
)

// PromoteLanes implements outbox.LaneStore. At most 1,024 rows are moved in one
// call. A row whose id is hot already is dropped from the deferred ones.
func (h handle) PromoteLanes(ctx context.Context, leases []outbox.LaneLease, dst []outbox.LaneRow) (n int, nextDue time.Time, err error) {
	if len(leases) == 0 {
		return 0, time.Time{}, nil
	}
	err = h.write(ctx, "promote", func(q Querier) error {
		n, nextDue, err = h.s.promote(ctx, q, leases, dst)
		return err
	})
	if err != nil {
		return 0, time.Time{}, err
	}
	return n, nextDue, nil
}

func (s *Store) promote(ctx context.Context, q Querier, leases []outbox.LaneLease, dst []outbox.LaneRow) (n int, nextDue time.Time, err error) {
	held, err := s.fenceLeases(ctx, q, leases)
	if err != nil || len(held) == 0 {
		return 0, time.Time{}, err
	}
	lanes := s.Rows(1)
	at := map[outbox.Lane]int{}
	for i, l := range held {
		lanes.Int(int64(l.Lane))
		at[l.Lane] = i
	}
	args := lanes.Args()
	room := min(len(dst), outbox.LaneLimits[len(outbox.LaneLimits)-1])
	if room > 0 {
		if n, err = s.promoteDue(ctx, q, args, room, dst); err != nil {
			return 0, time.Time{}, err
		}
		sorted := byRead{rows: dst[:n]}
		for _, r := range dst[:n] {
			sorted.at = append(sorted.at, at[r.Lane])
		}
		sort.Stable(sorted)
	}
	var next intColumn
	if err := queryRow(ctx, q, s.q.NextDue, args, &next); err != nil {
		return 0, time.Time{}, err
	}
	nextDue = instant(next)
	if n == room {
		return n, nextDue, nil
	}
	// What is due and still here is under a claim.
	var claimed intColumn
	if err := queryRow(ctx, q, s.q.NextClaimed, args, &claimed); err != nil {
		return 0, time.Time{}, err
	}
	if t := instant(claimed); claimed.Valid && (nextDue.IsZero() || t.Before(nextDue)) {
		nextDue = t
	}
	return n, nextDue, nil
}

// promoteDue moves up to room due rows of the lanes.
func (s *Store) promoteDue(ctx context.Context, q Querier, lanes []any, room int, dst []outbox.LaneRow) (n int, err error) {
	text, _ := s.q.Due.at(room)
	var due []place
	keys := map[outbox.ID][]byte{}
	err = q.Query(ctx, text, append(lanes[:len(lanes):len(lanes)], int64(room)), func(sr Row) error {
		var p place
		var id idColumn
		var key bytesColumn
		err := sr.Scan(&p.lane, &id, &key)
		p.id = id.id
		due = append(due, p)
		keys[p.id] = key
		return err
	})
	if err != nil {
		return 0, err
	}
	for len(due) > 0 {
		part := due[:min(len(due), chunkRows)]
		due = due[len(part):]
		var r row
		into := r.dest(nil)
		moved := make(map[outbox.ID]bool, len(part))
		err := q.Query(ctx, s.q.Promote, s.places(part), func(sr Row) error {
			if err := sr.Scan(into...); err != nil {
				return err
			}
			moved[r.id.id] = true
			dst[n] = r.laneRow()
			n++
			return nil
		})
		if err != nil {
			return 0, err
		}
		if err := s.drop(ctx, q, s.q.DropDeferred, part); err != nil {
			return 0, err
		}
		for _, p := range part {
			if moved[p.id] {
				continue
			}
			rec := outbox.Record{ID: p.id, Message: outbox.Message{Key: keys[p.id]}}
			if keys[p.id] != nil {
				rec.Lane = outbox.Lane(p.lane)
			}
			dst[n] = outbox.LaneRow{
				Lane: outbox.Lane(p.lane), Record: rec,
				Err: fmt.Errorf("%w: %s is ready already, its scheduled copy was dropped", outbox.ErrDuplicateID, p.id),
			}
			n++
		}
	}
	return n, nil
}
