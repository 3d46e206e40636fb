package sqlcore

import (
	"bytes"
	"cmp"
	"context"
	"math/bits"
	"slices"

	"github.com/postrider/postrider/outbox"
)

// keyOf is a key hash as a read asks for it, prev the last row of that hash at or
// below the read's cursor.
type keyOf struct {
	read int
	hash int64
}

type prev struct {
	key bytesColumn
	pos int64
}

// seenKey is a key of a lane of which all is known up to a position that lies
// below the cursor.
type seenKey struct{ lane, hash, above, after int64 }

// keyPrevs asks for the KeyPrev of rows, where the read that returned them does not
// tell; at is the read of each. It is a later look than the read's, and misses
// nothing for that: who was the first to write a row of a key had committed before
// the next one drew its position.
func (s *Store) keyPrevs(ctx context.Context, q Querier, reads []outbox.LaneRead, at []int, rows []outbox.LaneRow) error {
	if s.q.KeyPrevs == "" {
		return nil
	}
	prevs := map[keyOf]prev{}
	// A key that is seen up to a position has next to nothing between there and
	// the cursor; any other may have all that waits for it, and the largest is
	// asked for.
	unseen, all := s.Rows(4), false
	var seen []seenKey
	for i := range rows {
		r, k := &rows[i], keyOf{at[i], rows[i].KeyHash}
		rd := &reads[k.read]
		if _, asked := prevs[k]; asked || r.Record.Message.Key == nil || rd.After == 0 {
			continue
		}
		prevs[k] = prev{}
		above := rd.SeenUpTo(k.hash)
		if s.q.KeyPrevsAbove == "" {
			above = 0
		}
		switch {
		case above == 0:
			all = true
			unseen.Int(int64(k.read))
			unseen.Int(int64(r.Lane))
			unseen.Int(k.hash)
			unseen.Int(rd.After)
		case above < rd.After:
			seen = append(seen, seenKey{int64(r.Lane), k.hash, above, rd.After})
		}
	}
	if all {
		err := q.Query(ctx, s.q.KeyPrevs, unseen.Args(), func(sr Row) error {
			var k keyOf
			var p prev
			err := sr.Scan(&k.read, &k.hash, &p.key, &p.pos)
			prevs[k] = p
			return err
		})
		if err != nil {
			return err
		}
	}
	seen, err := s.withNews(ctx, q, seen)
	if err != nil {
		return err
	}
	if len(seen) > 0 {
		w := s.Rows(4)
		for _, k := range seen {
			w.Int(k.lane)
			w.Int(k.hash)
			w.Int(k.above)
			w.Int(k.after)
		}
		err := q.Query(ctx, s.q.KeyPrevsAbove, w.Args(), func(sr Row) error {
			var lane, hash int64
			var p prev
			err := sr.Scan(&lane, &hash, &p.key, &p.pos)
			for i := range reads {
				rd, k := &reads[i], keyOf{i, hash}
				last, asked := prevs[k]
				if asked && int64(rd.Lane) == lane && rd.SeenUpTo(hash) < p.pos && p.pos <= rd.After && last.pos < p.pos {
					prevs[k] = p
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for i := range rows {
		p, key := prevs[keyOf{at[i], rows[i].KeyHash}], rows[i].Record.Message.Key
		if rows[i].KeyPrev = p.pos; p.pos != 0 && !bytes.Equal(p.key, key) {
			rows[i].KeyPrev = -1 // of another key with that hash; what nobody holds has the key read
		}
	}
	return nil
}

// withNews returns those of the keys that have a row between what is seen and the
// cursor, which is next to none of them. To an optimizer a range with limits of its
// own for each key costs four times what a list of keys costs: keys that are seen
// about as far share a limit, and rows that are seen come back and are passed over.
// The limit lies at most twice as far below the cursor as what is seen, so that a
// key brings no more of them than the positions it is asked for.
func (s *Store) withNews(ctx context.Context, q Querier, keys []seenKey) (news []seenKey, err error) {
	if s.q.KeysAbove == "" || len(keys) == 0 {
		return keys, nil
	}
	far := func(k seenKey) int { return bits.Len64(uint64(k.after - k.above)) }
	slices.SortFunc(keys, func(a, b seenKey) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.after, b.after), cmp.Compare(far(a), far(b)), cmp.Compare(a.hash, b.hash))
	})
	at := make(map[hashedKey][]int, len(keys)) // of keys
	w, group := s.Rows(5), int64(0)
	w.Grow(len(keys))
	for i, k := range keys {
		p := hashedKey{k.lane, k.hash}
		at[p] = append(at[p], i)
		limit := int64(0)
		if n := far(k); n < 63 {
			limit = max(k.after-1<<n, 0)
		}
		if last := keys[max(i-1, 0)]; k.lane != last.lane || k.after != last.after || far(k) != far(last) {
			group++
		}
		w.Int(group)
		w.Int(k.lane)
		w.Int(limit)
		w.Int(k.after)
		w.Int(k.hash)
	}
	has := make([]bool, len(keys))
	err = q.Query(ctx, s.q.KeysAbove, w.Args(), func(sr Row) error {
		var p hashedKey
		var pos int64
		err := sr.Scan(&p.lane, &p.hash, &pos)
		for _, i := range at[p] {
			has[i] = has[i] || keys[i].above < pos && pos <= keys[i].after
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, k := range keys {
		if has[i] {
			news = append(news, k)
		}
	}
	return news, nil
}
