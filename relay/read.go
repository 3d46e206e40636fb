package relay

import (
	"context"
	"time"

	"github.com/postrider/postrider/outbox"
)

// linger lets rows gather after a short read, so that batches stay full and
// producers keep their speed beside a busy relay.
const linger = 2 * time.Millisecond

// readLoop reads what lies above the cursors, and the keys that are due.
func (e *engine) readLoop(ctx context.Context) {
	s := e.session("read")
	defer s.end()
	poll, failures := e.opt.PollMin, 0
	lastAll := time.Time{}
	for ctx.Err() == nil {
		e.mu.Lock()
		now := e.now()
		all := e.all.Swap(false) || time.Since(lastAll) >= poll
		keys, keyLimit := e.core.planKeys(64, now)
		lanes, limit := e.core.planRead(all, now)
		next := e.core.nextDue()
		e.mu.Unlock()

		var got, full bool
		var err error
		if len(keys) > 0 {
			got, err = e.readKeys(ctx, s, keys, keyLimit)
		}
		if len(lanes) > 0 && err == nil {
			var more bool
			more, full, err = e.readLanes(ctx, s, lanes, limit)
			got = got || more
		}
		if err != nil {
			failures++
			e.retryWait(ctx, failures)
			continue
		}
		failures = 0
		if all {
			lastAll = time.Now()
			if got {
				poll = e.opt.PollMin
			} else {
				poll = min(poll*2, e.opt.PollMax)
			}
		}
		switch {
		case full || len(keys) > 0:
		case got:
			poll = e.opt.PollMin
			pause(ctx, linger, nil)
		default:
			wait := poll
			if !next.IsZero() {
				wait = min(wait, max(next.Sub(now), e.opt.PollMin))
			}
			pause(ctx, wait, e.kick.read)
		}
	}
}

// readLanes reads lanes above their cursors. full: at least one has more.
func (e *engine) readLanes(ctx context.Context, s *session, lanes []*lane, limit int) (got, full bool, err error) {
	reads := make([]outbox.LaneRead, len(lanes))
	e.mu.Lock()
	for i, l := range lanes {
		reads[i] = outbox.LaneRead{Lane: l.lease.Lane, After: l.cursor}
	}
	e.mu.Unlock()
	err = e.read(ctx, s, reads, limit, func(parts [][]outbox.LaneRow) {
		now := e.now()
		high := int64(0)
		for i, l := range lanes {
			if l.closed() || l.cursor != reads[i].After {
				continue // given up, or started over, since the read began
			}
			rows := parts[i]
			for j := range rows {
				e.core.admit(l, &rows[j], now)
			}
			l.more = len(rows) == limit
			if n := len(rows); n > 0 {
				l.cursor = rows[n-1].Pos
				got = true
			}
			full = full || l.more
			high = max(high, l.cursor)
		}
		e.trail.add(time.Now(), high)
	})
	return got, full, err
}

// readKeys reads keys from their first undelivered row on.
func (e *engine) readKeys(ctx context.Context, s *session, keys []*key, limit int) (got bool, err error) {
	reads := make([]outbox.LaneRead, len(keys))
	for i, k := range keys {
		reads[i] = outbox.LaneRead{Lane: k.lane.lease.Lane, Keys: [][]byte{k.bytes}}
	}
	err = e.read(ctx, s, reads, limit, func(parts [][]outbox.LaneRow) {
		now := e.now()
		for i, k := range keys {
			got = got || len(parts[i]) > 0
			e.core.readKey(k, parts[i], limit, true, now)
		}
	})
	if err != nil {
		e.mu.Lock()
		for _, k := range keys {
			e.core.readKey(k, nil, limit, false, e.now())
		}
		e.mu.Unlock()
	}
	return got, err
}

// read runs one statement and hands its rows, per range, to take, under the
// lock and while the read still counts as under way: rows settled since it
// began are remembered until then.
func (e *engine) read(ctx context.Context, s *session, reads []outbox.LaneRead, limit int, take func(parts [][]outbox.LaneRow)) error {
	e.mu.Lock()
	id := e.core.reads.begin()
	e.mu.Unlock()
	dst := make([]outbox.LaneRow, limit*len(reads))
	var n int
	err := s.do(ctx, callTimeout, func(ctx context.Context, ls outbox.LaneStore) (err error) {
		n, err = ls.ReadLanes(ctx, reads, dst)
		return err
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.core.reads.end(id)
	if err != nil {
		return err
	}
	take(split(reads, dst[:n], limit))
	e.kickSenders()
	return nil
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

func belongs(rd *outbox.LaneRead, lr *outbox.LaneRow) bool {
	return lr.Lane == rd.Lane && (rd.Keys == nil || string(rd.Keys[0]) == string(lr.Record.Message.Key))
}

// trail remembers how far the lanes had been read in the last seconds, so that
// a sweep can start where positions were some time ago.
type trail struct {
	marks []mark
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
