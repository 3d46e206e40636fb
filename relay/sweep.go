package relay

import (
	"context"
	"time"

	"github.com/postrider/postrider/outbox"
)

// A sweep reads again what lies below the cursors and finds the rows that
// committed late: narrow ones often, the whole range seldom. Each leaves its
// connection idle for a multiple of the time it took.
type sweep struct {
	age    time.Duration // how far back in time it reaches; 0 = the whole range
	every  time.Duration
	factor time.Duration
	next   time.Time
}

const (
	housekeeping = time.Second // between looks for deferred and parked rows
	moveRows     = 256         // rows promoted or moved in one statement
)

// sweepLoop runs the sweeps, promotes what is due and moves parked rows, on one
// connection beside the reader's.
func (e *engine) sweepLoop(ctx context.Context) {
	s := e.session("sweep")
	defer s.end()
	sweeps := []*sweep{
		{age: 150 * time.Millisecond, every: 5 * time.Millisecond, factor: 5},
		{age: 2 * time.Second, every: 100 * time.Millisecond, factor: 20},
		{every: time.Second, factor: 50},
	}
	var promote, park time.Time
	failures := 0
	for ctx.Err() == nil {
		now := time.Now()
		var err error
		next := now.Add(housekeeping)
		for _, sw := range sweeps {
			if err == nil && !now.Before(sw.next) {
				err = e.sweep(ctx, s, sw)
				took := time.Since(now)
				now = now.Add(took)
				sw.next = now.Add(max(sw.every, took*sw.factor))
			}
			next = earlier(next, sw.next)
		}
		if err == nil && !now.Before(promote) {
			promote, err = e.promote(ctx, s)
		}
		if err == nil && !now.Before(park) {
			park, err = e.moveParked(ctx)
		}
		if err != nil {
			failures++
			e.retryWait(ctx, failures)
			continue
		}
		failures = 0
		next = earlier(next, earlier(promote, park))
		pause(ctx, time.Until(next), e.kick.sweep)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// sweep pages through its range of every lane up to the cursor.
func (e *engine) sweep(ctx context.Context, s *session, sw *sweep) error {
	e.mu.Lock()
	var from int64
	if sw.age > 0 {
		from = e.trail.before(time.Now().Add(-sw.age))
	}
	var lanes []*lane
	var reads []outbox.LaneRead
	for _, l := range e.core.lanes {
		if !l.closed() && l.loaded && l.cursor > from {
			lanes = append(lanes, l)
			reads = append(reads, outbox.LaneRead{Lane: l.lease.Lane, After: from, UpTo: l.cursor})
		}
	}
	e.mu.Unlock()
	for len(lanes) > 0 {
		limit := max(outbox.LaneLimit(readRows, len(reads)), 1)
		n := 0
		err := e.read(ctx, s, reads, limit, func(parts [][]outbox.LaneRow) {
			now := e.now()
			for i, l := range lanes {
				rows := parts[i]
				if l.closed() || len(rows) == 0 {
					continue
				}
				for j := range rows {
					e.core.admit(l, &rows[j], now)
				}
				if len(rows) == limit {
					lanes[n], reads[n] = l, reads[i]
					reads[n].After = rows[len(rows)-1].Pos
					n++
				}
			}
		})
		if err != nil {
			return err
		}
		lanes, reads = lanes[:n], reads[:n]
	}
	return nil
}

// promote moves due deferred rows into the hot range and returns when to look
// again.
func (e *engine) promote(ctx context.Context, s *session) (time.Time, error) {
	e.mu.Lock()
	now := e.now()
	leases := e.leases(func(l *lane) bool { return l.route.takes(now) })
	e.mu.Unlock()
	if len(leases) == 0 {
		return time.Now().Add(housekeeping), nil
	}
	dst := make([]outbox.LaneRow, moveRows)
	var n int
	var due time.Time
	err := s.do(ctx, callTimeout, func(ctx context.Context, ls outbox.LaneStore) (err error) {
		n, due, err = ls.PromoteLanes(ctx, leases, dst)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	for i := range dst[:n] {
		if dst[i].Err != nil {
			e.trouble(dst[i].Err)
		}
	}
	if n > 0 {
		e.all.Store(true)
		signal(e.kick.read)
	}
	switch {
	case n == len(dst):
		return time.Now(), nil
	case due.IsZero():
		return time.Now().Add(housekeeping), nil
	}
	e.mu.Lock()
	wait := due.Sub(e.now())
	e.mu.Unlock()
	return time.Now().Add(min(max(wait, e.opt.PollMin), housekeeping)), nil
}

// moveParked moves the rows of parked and unparking keys and returns when to
// look again.
func (e *engine) moveParked(ctx context.Context) (time.Time, error) {
	if e.parker == nil {
		return time.Now().Add(time.Hour), nil
	}
	e.mu.Lock()
	leases := e.leases(func(l *lane) bool { return l.moving })
	e.mu.Unlock()
	if len(leases) == 0 {
		return time.Now().Add(housekeeping), nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	moved, done, err := e.parker.MoveParked(ctx, leases, moveRows)
	if err != nil {
		if ctx.Err() == nil {
			e.lost("parked keys", err)
		}
		return time.Time{}, err
	}
	e.state.set("parked keys", nil)
	e.mu.Lock()
	for _, ls := range leases {
		l := e.core.lanes[ls.Lane]
		if l == nil || l.lease.Epoch != ls.Epoch {
			continue
		}
		for _, p := range done {
			if p.Lane == ls.Lane {
				e.core.unpark(l, p.Key)
			}
		}
		l.moving = len(l.parked) > 0 || moved == moveRows
	}
	e.mu.Unlock()
	if len(done) > 0 {
		signal(e.kick.read)
	}
	if moved == moveRows {
		return time.Now(), nil
	}
	return time.Now().Add(housekeeping), nil
}

// leases lists the leases of lanes that are not on their way out.
func (e *engine) leases(want func(*lane) bool) []outbox.LaneLease {
	var ls []outbox.LaneLease
	for _, l := range e.core.lanes {
		if !l.closed() && l.loaded && want(l) {
			ls = append(ls, l.lease)
		}
	}
	return ls
}

func (e *engine) trouble(err error) {
	if hook := e.opt.Hooks.Trouble; hook != nil {
		hook(err)
	}
}
