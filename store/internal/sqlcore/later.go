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
// Only the last 1,024 letters of a key are counted for, or each delivery would
// write to all that a key has gathered.
func (s *Store) countLater(ctx context.Context, q Querier, d *delivered) error {
	if d == nil || len(d.pos) == 0 {
		return nil
	}
	keys := make([]laneKey, 0, len(d.pos))
	for k, pos := range d.pos {
		keys = append(keys, k)
		slices.Sort(pos)
	}
	// In order, so that two calls that write to the same letters mostly take
	// them in one order; the engine ends a deadlock, and the call runs again.
	slices.SortFunc(keys, func(a, b laneKey) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), strings.Compare(a.key, b.key))
	})
	keys, err := s.lettered(ctx, q, keys)
	if err != nil || len(keys) == 0 {
		return err
	}
	starts, err := s.lettersFrom(ctx, q, d, keys)
	if err != nil {
		return err
	}
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
		pos, hash := d.pos[k], outbox.KeyHash([]byte(k.key))
		start, ok := starts[hashedKey{k.lane, hash}]
		if !ok {
			start = math.MinInt64
		}
		for i, p := range pos {
			if p <= start {
				continue // what lies below is counted no more
			}
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

// hashedKey is as much of a key as indexes know: two keys of one hash share their
// 1,024 letters.
type hashedKey struct{ lane, hash int64 }

// lettered are those of the keys that have letters: few of a lane, mostly, and what
// else is asked of a key, and written, costs more.
func (s *Store) lettered(ctx context.Context, q Querier, keys []laneKey) ([]laneKey, error) {
	has := map[hashedKey]bool{}
	for part := range slices.Chunk(keys, chunkRows) {
		w := s.Rows(2)
		for _, k := range part {
			w.Int(k.lane)
			w.Int(outbox.KeyHash([]byte(k.key)))
		}
		err := q.Query(ctx, s.q.Lettered, w.Args(), func(r Row) error {
			var k hashedKey
			err := r.Scan(&k.lane, &k.hash)
			has[k] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(keys, func(k laneKey) bool {
		return !has[hashedKey{k.lane, outbox.KeyHash([]byte(k.key))}]
	}), nil
}

// lettersFrom tells from which position on the letters of each key are counted
// for, where not all are.
func (s *Store) lettersFrom(ctx context.Context, q Querier, d *delivered, keys []laneKey) (map[hashedKey]int64, error) {
	starts := map[hashedKey]int64{}
	for part := range slices.Chunk(keys, chunkRows) {
		w := s.Rows(3)
		for _, k := range part {
			pos := d.pos[k]
			w.Int(k.lane)
			w.Int(outbox.KeyHash([]byte(k.key)))
			w.Int(pos[len(pos)-1])
		}
		err := q.Query(ctx, s.q.LettersFrom, w.Args(), func(r Row) error {
			var k hashedKey
			var start int64
			err := r.Scan(&k.lane, &k.hash, &start)
			starts[k] = start
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return starts, nil
}
