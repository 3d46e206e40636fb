package sqlcore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/postrider/postrider/outbox"
)

// ReadLanes implements outbox.LaneStore with one statement. Each key of a read
// that names keys counts as a read of its own; fewer slots than reads, a lane
// that does not exist and an empty key are outbox.ErrInvalidArgument.
func (h handle) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (n int, err error) {
	ranges, keyed := 0, false
	for _, rd := range reads {
		ranges += max(1, len(rd.Keys))
		keyed = keyed || len(rd.Keys) > 0
	}
	if ranges == 0 {
		return 0, nil
	}
	limit := outbox.LaneLimit(len(dst), ranges)
	if limit == 0 {
		return 0, invalid("%d slots for %d reads: give each read one at least", len(dst), ranges)
	}
	if err := h.s.checkLanes(ctx, reads); err != nil {
		return 0, err
	}
	texts, columns := &h.s.q.ReadRanges, 3
	if keyed {
		texts, columns = &h.s.q.ReadKeys, 5
	}
	text, _ := texts.at(limit)
	w := h.s.Rows(columns)
	w.Grow(ranges)
	at := make([]int, 0, ranges) // which read a row of the parameter belongs to
	for i, rd := range reads {
		upTo := rd.UpTo
		if upTo == 0 {
			upTo = math.MaxInt64
		}
		for j := range max(1, len(rd.Keys)) {
			at = append(at, i)
			w.Int(int64(rd.Lane))
			w.Int(rd.After)
			w.Int(upTo)
			switch {
			case !keyed:
			case len(rd.Keys) == 0:
				w.Null()
				w.Null()
			default:
				if len(rd.Keys[j]) == 0 {
					return 0, invalid("read %d of lane %d has an empty key: name keys of rows", i, rd.Lane)
				}
				w.Int(outbox.KeyHash(rd.Keys[j]))
				w.Bytes(rd.Keys[j])
			}
		}
	}
	args := w.Args()
	if !h.s.d.inOrder && h.s.q.KeyPrevs == "" {
		args = append(args, h.s.seen(reads)...)
	}
	var sorted byRead
	err = h.read(ctx, "read lanes", func(q Querier) error {
		n = 0
		sorted.at = sorted.at[:0]
		var large []withheld
		if lq, ok := q.(LaneQuerier); ok {
			notes := make([]LaneNote, len(dst))
			if n, err = lq.QueryLanes(ctx, text, args, dst, notes); err != nil {
				return err
			}
			for i, note := range notes[:n] {
				sorted.at = append(sorted.at, at[note.Read-1])
				if note.Withheld > 0 {
					large = append(large, withheld{i, note.Withheld})
				}
			}
			return h.bodies(ctx, q, dst, large)
		}
		var r row
		var ord, claimed int64
		var prev, size intColumn
		var hint hintColumn
		into := r.dest([]any{&ord}, &claimed, &prev, &hint, &size)
		err := q.Query(ctx, text, args, func(sr Row) error {
			if err := sr.Scan(into...); err != nil {
				return err
			}
			dst[n] = r.laneRow()
			dst[n].Claimed = claimed != 0
			dst[n].KeyPrev = prev.Int64
			dst[n].Hint = uint64(hint)
			sorted.at = append(sorted.at, at[ord-1])
			if size.Int64 > 0 {
				large = append(large, withheld{n, int(size.Int64)})
			}
			n++
			return nil
		})
		if err == nil {
			err = h.s.keyPrevs(ctx, q, reads, sorted.at, dst[:n])
		}
		if err != nil {
			return err
		}
		return h.bodies(ctx, q, dst, large)
	})
	if err != nil {
		return 0, err
	}
	sorted.rows = dst[:n]
	// The statements return this order, but no engine promises it.
	if !sort.IsSorted(sorted) {
		sort.Stable(sorted)
	}
	return n, nil
}

func (r *row) laneRow() outbox.LaneRow {
	rec, err := r.record()
	return outbox.LaneRow{Lane: outbox.Lane(r.lane), Pos: r.pos, Record: rec, KeyHash: r.keyHash.Int64, RetryAt: instant(r.retryAt), Err: err}
}

// A body of more than largeBody bytes is read by itself, part by part: drivers
// hold a row as a whole, in a buffer of up to twice its size beside the body.
const largeBody = 2 << 20

// withheld is a row whose body was too large to come with the others.
type withheld struct{ at, size int }

// bodies reads the bodies that were withheld. A row that leaves the hot range
// meanwhile comes back claimed, without one: were it left out, the read would be
// short, as if there were no more rows.
func (h handle) bodies(ctx context.Context, q Querier, dst []outbox.LaneRow, large []withheld) error {
	for _, w := range large {
		row := &dst[w.at]
		body := partColumn(make([]byte, 0, w.size))
		for len(body) < w.size {
			had := len(body)
			args := []any{int64(row.Lane), row.Pos, h.s.d.id(row.Record.ID), int64(had + 1), int64(largeBody)}
			err := q.Query(ctx, h.s.q.BodyPart, args, func(sr Row) error { return sr.Scan(&body) })
			if err != nil {
				return err
			}
			if len(body) == had || len(body) > w.size {
				row.Claimed, body = true, nil
				break
			}
		}
		row.Record.Message.Body = body
	}
	return nil
}

// partColumn appends what it scans.
type partColumn []byte

func (c *partColumn) Scan(src any) error {
	switch v := src.(type) {
	case []byte:
		*c = append(*c, v...)
	case string:
		*c = append(*c, v...)
	default:
		return fmt.Errorf("column holds a %T, not bytes", src)
	}
	return nil
}

// seen are the keys that the reads name as seen, by code; see probe. Of two that
// have one code only one is named.
func (s *Store) seen(reads []outbox.LaneRead) []any {
	type key struct{ code, lane, pos int64 }
	n := 0
	for i := range reads {
		n += len(reads[i].Seen)
	}
	all := make([]key, 0, n)
	for i := range reads {
		lane := int64(reads[i].Lane)
		for _, k := range reads[i].Seen {
			all = append(all, key{k.Hash ^ lane, lane, k.Pos})
		}
	}
	slices.SortFunc(all, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(a.lane, b.lane), cmp.Compare(a.pos, b.pos))
	})
	all = slices.CompactFunc(all, func(a, b key) bool { return a.code == b.code })
	w := s.Rows(3)
	w.Grow(len(all))
	for _, k := range all {
		w.Int(k.code)
		w.Int(k.lane)
		w.Int(k.pos)
	}
	return w.Args()
}

// checkLanes refuses lanes that do not exist: a read of one would look like a
// lane without rows.
func (s *Store) checkLanes(ctx context.Context, reads []outbox.LaneRead) error {
	t, err := s.knownRoutes(ctx)
	if err != nil {
		return s.wrap(ctx, "read lanes", err)
	}
	for fresh := false; ; fresh = true {
		unknown := outbox.Lane(0)
		found := false
		for _, rd := range reads {
			if _, ok := t.at(rd.Lane); !ok {
				unknown, found = rd.Lane, true
				break
			}
		}
		switch {
		case !found:
			return nil
		case fresh:
			return invalid("lane %d does not exist: read lanes of a lease", unknown)
		}
		if t, err = s.freshRoutes(ctx); err != nil {
			return s.wrap(ctx, "read lanes", err)
		}
	}
}

// byRead sorts rows by the read they belong to, then by position.
type byRead struct {
	at   []int
	rows []outbox.LaneRow
}

func (b byRead) Len() int { return len(b.rows) }
func (b byRead) Less(i, j int) bool {
	if b.at[i] != b.at[j] {
		return b.at[i] < b.at[j]
	}
	return b.rows[i].Pos < b.rows[j].Pos
}

func (b byRead) Swap(i, j int) {
	b.at[i], b.at[j] = b.at[j], b.at[i]
	b.rows[i], b.rows[j] = b.rows[j], b.rows[i]
}
