package relay

import (
	"slices"

	"github.com/postrider/postrider/outbox"
)

// seenKeys remembers of the keys of a lane that come often how far they were
// read. Everything of a key up to that position is held, on its way, or done
// with; or the key is partial or parked, and read afresh before it goes on. So a
// row of it that commits late lies above: its transaction has had the key's lock
// after those of the rows that were read. The store need not look further down,
// where as long as an old snapshot is open the entries of all that was delivered
// are still to be walked.
type seenKeys struct {
	often    int               // rows after which a key is told to the store
	most     int               // keys of a generation
	now, old map[int64]seenKey // by hash; a key that comes again moves from old to now
	hot      []int64           // hashes of those that came often, sorted
}

type seenKey struct {
	name string
	pos  int64
	rows int
}

const (
	seenOften = 16
	seenMost  = 512
)

// note remembers the row's key and position.
func (s *seenKeys) note(r *row) {
	h := r.KeyHash
	e, ok := s.now[h]
	if !ok {
		if e, ok = s.old[h]; !ok {
			e.name = r.key.name
		}
		if len(s.now) == s.most {
			s.turn()
		}
	}
	if e.name != r.key.name {
		return // two keys of one hash: the first one keeps it
	}
	e.pos = max(e.pos, r.Pos)
	if e.rows++; e.rows >= s.often {
		if i, ok := slices.BinarySearch(s.hot, h); !ok {
			s.hot = slices.Insert(s.hot, i, h)
		}
	}
	if s.now == nil {
		s.now = map[int64]seenKey{}
	}
	s.now[h] = e
}

// turn forgets the keys that did not come for a generation.
func (s *seenKeys) turn() {
	s.now, s.old = s.old, s.now
	clear(s.now)
	s.hot = slices.DeleteFunc(s.hot, func(h int64) bool { _, ok := s.old[h]; return !ok })
}

// clear forgets all of them.
func (s *seenKeys) clear() { s.now, s.old, s.hot = nil, nil, nil }

// holds tells whether what was said of the row's key in rd still counts: it was
// said of this key, not of another one with its hash, and nothing has come back
// since.
func (s *seenKeys) holds(rd *outbox.LaneRead, h int64, name []byte) bool {
	if rd.SeenUpTo(h) == 0 {
		return true
	}
	e, ok := s.now[h]
	if !ok {
		e, ok = s.old[h]
	}
	return ok && e.name == string(name)
}

func (s *seenKeys) knows(name string) bool {
	h := outbox.KeyHash([]byte(name))
	return s.now[h].name == name || s.old[h].name == name
}

// note takes a row that was kept, with all of its key below it.
func (l *lane) note(r *row) {
	if !l.lease.Dead {
		l.seen.note(r)
	}
}

// bury notes that the lane has dead letters with keys. One that is replayed comes
// back at its old position: from now on nothing counts as seen.
func (l *lane) bury() {
	l.lease.Dead = true
	l.seen.clear()
}

// promoted notes that rows of a key were given new positions, drawn without its
// lock: while they were not committed, rows above them may have been read. So
// nothing counts as seen from before the call until its answer, and then the key is
// read afresh.
func (c *core) promoted(l *lane, name string) {
	if l.closed() || l.parked[name] || !l.seen.knows(name) {
		return
	}
	k := l.keys[name]
	if k == nil {
		k = l.key(name)
	}
	c.cut(k, 0)
}

// seenOf lists, for a read of l, the keys that came often.
func (c *core) seenOf(l *lane) []outbox.SeenKey {
	s := &l.seen
	if l.lease.Dead || l.promotes || len(s.hot) == 0 {
		return nil
	}
	c.seen[evSeen]++
	keys := make([]outbox.SeenKey, len(s.hot))
	for i, h := range s.hot {
		e, ok := s.now[h]
		if !ok {
			e = s.old[h]
		}
		keys[i] = outbox.SeenKey{Hash: h, Pos: e.pos}
	}
	return keys
}
