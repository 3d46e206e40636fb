package relay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// linger lets rows gather after a short read, so that batches stay full and
// producers keep their speed beside a busy relay.
const linger = 2 * time.Millisecond

// keysPerRead is the most keys in one read through the key index.
const keysPerRead = 64

// reader reads what lies above the cursors, and the keys that are due.
type reader struct {
	loop
	e     *engine
	poll  time.Duration // between reads of every lane
	at    time.Time     // when every lane is to be read again
	short bool          // the last read got rows, but not all it asked for
	floor int64         // every lane has been read as far as this
	above int64         // rows above floor read since
}

func (r *reader) next() (*call, wait) {
	e := r.e
	if r.short {
		r.short = false
		return nil, wait{linger, true}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	if keys, limit := e.core.planKeys(keysPerRead, now); len(keys) > 0 {
		return r.keysCall(keys, limit), wait{}
	}
	all := e.all || !time.Now().Before(r.at)
	lanes, limit := e.core.planRead(all, now)
	if len(lanes) > 0 {
		e.all = e.all && !all
		return r.lanesCall(lanes, limit, all), wait{}
	}
	if all {
		r.at = time.Now().Add(r.poll)
	}
	w := time.Until(r.at)
	if due := e.core.nextDue(); !due.IsZero() {
		w = min(w, max(due.Sub(now), e.opt.PollMin))
	}
	return nil, wait{d: w}
}

// lanesCall reads lanes above their cursors.
func (r *reader) lanesCall(lanes []*lane, limit int, all bool) *call {
	e := r.e
	reads := make([]outbox.LaneRead, len(lanes))
	for i, l := range lanes {
		reads[i] = outbox.LaneRead{Lane: l.lease.Lane, After: l.cursor, Seen: e.core.seenOf(l)}
	}
	return r.readCall(e, reads, limit, func(parts [][]outbox.LaneRow) {
		now := e.now()
		got, fresh, full := false, false, false // fresh: from lanes without a backlog
		high := int64(0)
		for i, l := range lanes {
			if l.closed() || l.cursor != reads[i].After {
				parts[i] = nil // given up, or started over, since the read began
			}
		}
		byPosition(parts, func(i int, lr *outbox.LaneRow) {
			if lr.Pos > r.floor {
				r.above++
			}
			e.core.admit(lanes[i], &reads[i], lr, now)
		})
		for i, l := range lanes {
			rows := parts[i]
			if rows == nil {
				continue
			}
			if n := len(rows); n > 0 {
				l.cursor = rows[n-1].Pos
				got, fresh = true, fresh || !l.more
			}
			l.more = len(rows) == limit
			if !l.more {
				e.core.seenAll(l)
			}
			full = full || l.more
			high = max(high, l.cursor)
		}
		e.trail.add(time.Now(), high)
		if all && !full {
			if e.trail.high-r.floor > r.above {
				e.sweep.hurry()
			}
			r.floor, r.above = e.trail.high, 0
		}
		e.deep = full
		r.short = got && !full
		switch {
		case fresh || r.short:
			r.poll = e.opt.PollMin
		case all:
			r.poll = min(r.poll*2, e.opt.PollMax)
		}
		if all {
			r.at = time.Now().Add(r.poll)
		}
	}, func() {
		e.all = e.all || all
	})
}

// keysCall reads keys from their first undelivered row on.
func (r *reader) keysCall(keys []*key, limit int) *call {
	e := r.e
	reads := make([]outbox.LaneRead, len(keys))
	for i, k := range keys {
		reads[i] = outbox.LaneRead{Lane: k.lane.lease.Lane, Keys: [][]byte{[]byte(k.name)}}
	}
	return r.readCall(e, reads, limit, func(parts [][]outbox.LaneRow) {
		now := e.now()
		for i, k := range keys {
			e.core.readKey(k, parts[i], limit, now)
		}
	}, func() {
		for _, k := range keys {
			e.core.unreadKey(k, e.now())
		}
	})
}

// readCall reads ranges and hands their rows to take. Their memory is the loop's
// own, for its next read: take copies what it keeps.
func (l *loop) readCall(e *engine, reads []outbox.LaneRead, limit int, take func(parts [][]outbox.LaneRow), failed func()) *call {
	l.rows = slices.Grow(l.rows[:0], limit*len(reads))
	dst := l.rows[:limit*len(reads)]
	var n int
	late := false
	return e.reading(func(ctx context.Context, ls outbox.LaneStore) (err error) {
		n, err = ls.ReadLanes(ctx, reads, dst)
		late = errors.Is(ctx.Err(), context.DeadlineExceeded)
		if err == nil {
			e.begun.Store(true)
		}
		return err
	}, func() {
		take(split(reads, dst[:n], limit))
		clear(dst[:n]) // else an idle relay keeps the bodies of its last read
	}, func() {
		if late {
			e.core.tooLarge(reads)
		}
		failed()
	})
}

// reading makes a call that returns rows. take is called under the lock and
// while the read still counts as under way: rows settled since it began are
// remembered until then. failed is called instead after an error.
func (e *engine) reading(do func(context.Context, outbox.LaneStore) error, take, failed func()) *call {
	id := e.core.reads.begin()
	return &call{
		timeout: callTimeout,
		do:      do,
		end: func(err error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if err != nil {
				failed()
			} else {
				take()
			}
			e.core.reads.end(id)
			e.kickSenders()
		},
	}
}

// split divides rows among the reads they came from, in order.
func split(reads []outbox.LaneRead, rows []outbox.LaneRow, limit int) [][]outbox.LaneRow {
	parts := make([][]outbox.LaneRow, len(reads))
	at := 0
	for i, rd := range reads {
		from := at
		for at < len(rows) && at-from < limit && belongs(&rd, &rows[at]) {
			at++
		}
		parts[i] = rows[from:at]
	}
	return parts
}

// byPosition calls take with the rows of all parts, lowest position first: rows
// that lie together in the table are then sent, and deleted, together.
func byPosition(parts [][]outbox.LaneRow, take func(part int, lr *outbox.LaneRow)) {
	rest := slices.Clone(parts)
	for {
		next := -1
		for i, rows := range rest {
			if len(rows) > 0 && (next < 0 || rows[0].Pos < rest[next][0].Pos) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		take(next, &rest[next][0])
		rest[next] = rest[next][1:]
	}
}

func belongs(rd *outbox.LaneRead, lr *outbox.LaneRow) bool {
	return lr.Lane == rd.Lane && (rd.Keys == nil || string(rd.Keys[0]) == string(lr.Record.Message.Key))
}

// trail remembers how far the lanes had been read in the last seconds, so that
// a sweep can start where positions were some time ago.
type trail struct {
	marks []mark
	high  int64 // the highest position so far
}

type mark struct {
	at  time.Time
	pos int64
}

const (
	trailStep = 10 * time.Millisecond
	trailSpan = 3 * time.Second
)

func (t *trail) add(at time.Time, pos int64) {
	t.high = max(t.high, pos)
	if n := len(t.marks); n > 0 {
		pos = max(pos, t.marks[n-1].pos)
		if at.Sub(t.marks[n-1].at) < trailStep {
			return
		}
	}
	t.marks = append(t.marks, mark{at, pos})
	old := 0
	for old < len(t.marks)-1 && at.Sub(t.marks[old+1].at) > trailSpan {
		old++
	}
	t.marks = t.marks[old:]
}

// before is the highest position read at that time; 0 if that is not known.
func (t *trail) before(at time.Time) int64 {
	for i := len(t.marks) - 1; i >= 0; i-- {
		if !t.marks[i].at.After(at) {
			return t.marks[i].pos
		}
	}
	return 0
}
