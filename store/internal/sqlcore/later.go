package sqlcore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/postrider/postrider/outbox"
)

// laneKey is an ordering key of a lane.
type laneKey struct {
	lane int64
	key  string
}

// delivered are the positions of keyed rows that are to be counted for the dead
// letters of their keys.
type delivered struct {
	pos map[laneKey][]int64
}

// add notes the accepted row f of t; nil notes nothing.
func (d *delivered) add(t *outbox.Settlement, f *found) {
	if d == nil || !t.Later || !f.hash.Valid {
		return
	}
	if d.pos == nil {
		d.pos = map[laneKey][]int64{}
	}
	k := laneKey{int64(t.Lane), string(f.key)}
	d.pos[k] = append(d.pos[k], t.Pos)
}

// countLater adds to the dead letters of each key how many rows behind them
// have been delivered. The positions cut a lane into ranges, in each of which
// the count is the same: a letter lies in one of them, and so is written once.
func (s *Store) countLater(ctx context.Context, q Querier, d *delivered) error {
	if d == nil || len(d.pos) == 0 {
		return nil
	}
	keys := make([]laneKey, 0, len(d.pos))
	for k := range d.pos {
		keys = append(keys, k)
	}
	// In order, so that two calls that write to the same letters mostly take
	// them in one order; the engine ends a deadlock, and the call runs again.
	slices.SortFunc(keys, func(a, b laneKey) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), strings.Compare(a.key, b.key))
	})
	w, rows := s.Rows(6), 0
	flush := func() error {
		if rows == 0 {
			return nil
		}
		_, err := q.Exec(ctx, s.q.CountLater, w.Args()...)
		w, rows = s.Rows(6), 0
		return err
	}
	for _, k := range keys {
		pos := d.pos[k]
		slices.Sort(pos)
		start, hash := int64(math.MinInt64), outbox.KeyHash([]byte(k.key))
		for i, p := range pos {
			w.Int(k.lane)
			w.Int(hash)
			w.Bytes([]byte(k.key))
			w.Int(start)
			w.Int(p)
			w.Int(int64(len(pos) - i))
			start = p
			if rows++; rows == chunkRows {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}
