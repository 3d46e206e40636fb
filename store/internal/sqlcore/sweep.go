package sqlcore

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/postrider/postrider/outbox"
)

// SweepLanes implements outbox.LaneStore with one statement.
func (h handle) SweepLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneSpot) (n int, err error) {
	if len(reads) == 0 {
		return 0, nil
	}
	limit := outbox.LaneLimit(len(dst), len(reads))
	if limit == 0 {
		return 0, invalid("%d slots for %d reads: give each read one at least", len(dst), len(reads))
	}
	if err := h.s.checkLanes(ctx, reads); err != nil {
		return 0, err
	}
	w := h.s.Rows(3)
	w.Grow(len(reads))
	for _, rd := range reads {
		if rd.Keys != nil {
			return 0, invalid("the sweep of lane %d names keys: read them with ReadLanes", rd.Lane)
		}
		w.Int(int64(rd.Lane))
		w.Int(rd.After)
		w.Int(cmp.Or(rd.UpTo, math.MaxInt64))
	}
	text, _ := h.s.q.SweepRanges.at(limit)
	args := w.Args()
	type spot struct {
		outbox.LaneSpot
		ord int64
	}
	spots := make([]spot, 0, len(dst))
	err = h.read(ctx, "sweep lanes", func(q Querier) error {
		spots = spots[:0]
		var s spot
		var id idColumn
		var hash intColumn
		into := []any{&s.ord, &s.Lane, &s.Pos, &id, &hash, &s.Size}
		return q.Query(ctx, text, args, func(sr Row) error {
			err := sr.Scan(into...)
			s.ID, s.KeyHash = id.id, hash.Int64
			spots = append(spots, s)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	// The statement returns this order, but no engine promises it.
	order := func(a, b spot) int { return cmp.Or(cmp.Compare(a.ord, b.ord), cmp.Compare(a.Pos, b.Pos)) }
	if !slices.IsSortedFunc(spots, order) {
		slices.SortFunc(spots, order)
	}
	for i, s := range spots {
		dst[i] = s.LaneSpot
	}
	return len(spots), nil
}
