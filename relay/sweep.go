package relay

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// sweeper looks again at what lies below the cursors and so finds the rows that
// committed late: narrow ranges often, the whole range seldom. It asks where
// rows lie, and reads only those that nobody holds. On the same connection,
// beside the reader's, it promotes what is due and moves the rows of parked
// keys.
type sweeper struct {
	loop
	e       *engine
	spans   []*span
	promote time.Time // when to look for deferred rows
	park    time.Time // when to look for parked rows
	page    *page     // the sweep under way
	found   []find    // to be read before the sweep goes on
	haste   time.Time // until then hasty sweeps come sooner
	spots   []outbox.LaneSpot
}

// find is up to findRows rows of a lane, one behind the other, that the relay
// does not hold.
type find struct {
	lane        *lane
	first, last int64
	rows        int
}

// span is a kind of sweep. Each leaves the connection idle for a multiple of
// the time it took.
type span struct {
	age    time.Duration // how far back in time it reaches; 0 = the whole range
	every  time.Duration
	factor time.Duration
	hasty  bool      // comes sooner in haste
	at     time.Time // when it is due
	soon   time.Time // when it is due in haste
}

// page is where a sweep stands.
type page struct {
	span  *span
	began time.Time
	lanes []*lane
	reads []outbox.LaneRead
}

const (
	hasteFor       = 30 * time.Millisecond
	hasteEvery     = 2 * time.Millisecond // span.every in haste
	hasteFactor    = 3                    // and span.factor
	sweepGap       = time.Minute          // the most between two sweeps of a kind,
	sweepGapFactor = 10                   // unless one takes more than a tenth of that
	housekeeping   = time.Second          // between looks for deferred and parked rows
	moveRows       = 256                  // rows promoted or moved in one call
	sweepRows      = 4096                 // spots a sweep asks for at once
	findRows       = 32                   // of outbox.LaneLimits
)

func newSweeper(e *engine) *sweeper {
	s := &sweeper{loop: newLoop("sweep"), e: e, spans: []*span{
		{age: 150 * time.Millisecond, every: 5 * time.Millisecond, factor: 10, hasty: true},
		{age: 2 * time.Second, every: 100 * time.Millisecond, factor: 40},
		{every: time.Second, factor: 100},
	}}
	if commitsInOrder(e.store) {
		s.spans = s.spans[2:]
	}
	return s
}

func commitsInOrder(store any) bool {
	o, ok := store.(outbox.CommitOrder)
	return ok && o.CommitsInOrder()
}

func (s *sweeper) next() (*call, wait) {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if lanes := e.core.unloaded(e.now()); len(lanes) > 0 {
		return s.loadCall(lanes), wait{}
	}
	if len(s.found) > 0 {
		if c := s.findCall(); c != nil {
			return c, wait{}
		}
	}
	if s.page == nil {
		for _, sp := range s.spans {
			if s.page == nil && !now.Before(s.due(sp, now)) {
				s.begin(sp, now)
			}
		}
	}
	if s.page != nil {
		return s.pageCall(), wait{}
	}
	if !now.Before(s.promote) {
		if c := s.promoteCall(now); c != nil {
			return c, wait{}
		}
	}
	if !now.Before(s.park) {
		if c := s.parkCall(now); c != nil {
			return c, wait{}
		}
	}
	at := s.promote
	if s.park.Before(at) {
		at = s.park
	}
	for _, sp := range s.spans {
		if due := s.due(sp, now); due.Before(at) {
			at = due
		}
	}
	return nil, wait{d: at.Sub(now)}
}

// hurry is called when a read has passed over a position that no row has shown:
// a transaction drew it and has not committed yet, which most do within
// milliseconds. Or it never will, or the lane is another relay's: so the haste
// ends soon.
func (s *sweeper) hurry() {
	s.haste = time.Now().Add(hasteFor)
	s.signal()
}

// due is when a sweep of the kind begins.
func (s *sweeper) due(sp *span, now time.Time) time.Time {
	if sp.hasty && now.Before(s.haste) {
		return sp.soon
	}
	return sp.at
}

// begin starts a sweep, unless nothing lies in its range.
func (s *sweeper) begin(sp *span, now time.Time) {
	e := s.e
	var from int64
	if sp.age > 0 {
		from = e.trail.before(now.Add(-sp.age))
	}
	p := &page{span: sp, began: now}
	for _, l := range e.core.list {
		if !l.closed() && l.loaded && l.cursor > from {
			p.lanes = append(p.lanes, l)
			p.reads = append(p.reads, outbox.LaneRead{Lane: l.lease.Lane, After: from, UpTo: l.cursor})
		}
	}
	if len(p.lanes) == 0 {
		sp.at, sp.soon = now.Add(sp.every), now.Add(sp.every)
		return
	}
	s.page = p
}

// pageCall looks at the next page of the sweep under way. A sweep pages until it
// reaches the cursor: a fixed limit over blocked rows would return the same rows
// for ever.
func (s *sweeper) pageCall() *call {
	e, p := s.e, s.page
	lanes, reads := p.lanes, p.reads
	limit := max(outbox.LaneLimit(sweepRows, len(reads)), 1)
	s.spots = slices.Grow(s.spots[:0], limit*len(reads))
	dst := s.spots[:limit*len(reads)]
	var n int
	return e.reading(func(ctx context.Context, ls outbox.LaneStore) (err error) {
		n, err = ls.SweepLanes(ctx, reads, dst)
		return err
	}, func() {
		p.lanes, p.reads = nil, nil
		spots := dst[:n]
		for i, l := range lanes {
			rows := 0
			for rows < len(spots) && rows < limit && spots[rows].Lane == l.lease.Lane {
				rows++
			}
			if !l.closed() {
				s.find(l, spots[:rows], p.span.age == 0)
				if rows == limit {
					rd := reads[i]
					rd.After = spots[rows-1].Pos
					p.lanes, p.reads = append(p.lanes, l), append(p.reads, rd)
				}
			}
			spots = spots[rows:]
		}
		if len(p.lanes) == 0 {
			s.done()
		}
	}, s.done)
}

// done ends the sweep under way.
func (s *sweeper) done() {
	now := time.Now()
	sp, took := s.page.span, now.Sub(s.page.began)
	gap := took * sp.factor
	if s.e.deep {
		gap *= 4 // there is enough to send: what committed late is not later for it
	}
	// One that had to wait is no measure of the next.
	gap = min(gap, max(sweepGap, took*sweepGapFactor))
	sp.at = now.Add(max(sp.every, gap))
	sp.soon = now.Add(max(hasteEvery, took*hasteFactor))
	s.page = nil
}

// find notes the rows that are to be read.
func (s *sweeper) find(l *lane, spots []outbox.LaneSpot, whole bool) {
	var f *find
	for i := range spots {
		p := &spots[i]
		switch {
		case !s.e.core.missing(l, p, whole):
			f = nil
		case f != nil && f.rows < findRows:
			f.last = p.Pos
			f.rows++
		default:
			s.found = append(s.found, find{l, p.Pos, p.Pos, 1})
			f = &s.found[len(s.found)-1]
		}
	}
}

// findCall reads what was found. What has no room now is met by a later sweep.
func (s *sweeper) findCall() *call {
	e, now := s.e, s.e.now()
	var finds []find
	var reads []outbox.LaneRead
	limit, i := findRows, 0
	for ; i < len(s.found) && len(finds) < readRows/findRows; i++ {
		f := s.found[i]
		rt := f.lane.route
		if f.lane.closed() || !rt.takes(now) || !e.core.room(rt) {
			continue
		}
		if len(finds) > 0 && limit*(len(finds)+1) > e.core.budget(rt) {
			break
		}
		// Where fewer fit than were found, a later sweep tells of the others.
		limit = min(limit, e.core.readLimit(rt, 1))
		finds = append(finds, f)
		reads = append(reads, outbox.LaneRead{Lane: f.lane.lease.Lane, After: f.first - 1, UpTo: f.last, Seen: e.core.seenOf(f.lane)})
	}
	if s.found = s.found[i:]; len(s.found) == 0 {
		s.found = nil
	}
	if len(finds) == 0 {
		return nil
	}
	return s.readCall(e, reads, limit, func(parts [][]outbox.LaneRow) {
		now := e.now()
		for i, f := range finds {
			for j := range parts[i] {
				if !f.lane.closed() {
					e.core.seen[evFound]++
					e.core.admit(f.lane, &reads[i], &parts[i][j], now)
				}
			}
		}
	}, func() {})
}

// promoteCall moves due deferred rows into the hot range.
func (s *sweeper) promoteCall(now time.Time) *call {
	e := s.e
	at := e.now()
	leases := e.leases(func(l *lane) bool { return l.route.takes(at) })
	s.promote = now.Add(housekeeping)
	if len(leases) == 0 {
		return nil
	}
	most := moveRows
	for _, rt := range e.core.routes {
		most = min(most, max(e.opt.BufferBytes/rt.size, 1)) // they come back, and are not kept
	}
	dst := make([]outbox.LaneRow, most)
	lanes := map[outbox.Lane]*lane{}
	for _, ls := range leases {
		l := e.core.lanes[ls.Lane]
		l.promotes, lanes[ls.Lane] = true, l
	}
	var n int
	var due time.Time
	return &call{
		timeout: callTimeout,
		do: func(ctx context.Context, ls outbox.LaneStore) (err error) {
			n, due, err = ls.PromoteLanes(ctx, leases, dst)
			return err
		},
		end: func(err error) {
			e.mu.Lock()
			now := time.Now()
			switch {
			case err != nil || n == len(dst):
				s.promote = now
			case !due.IsZero():
				s.promote = now.Add(min(max(due.Sub(e.now()), e.opt.PollMin), housekeeping))
			}
			if n > 0 {
				e.all = true
			}
			for _, l := range lanes {
				l.promotes = false
			}
			for i := range dst[:n] {
				if l, key := lanes[dst[i].Lane], dst[i].Record.Message.Key; l != nil && key != nil {
					e.core.promoted(l, string(key))
				}
			}
			e.mu.Unlock()
			for i := range dst[:n] {
				if dst[i].Err != nil {
					e.trouble(dst[i].Err)
				}
			}
			if n > 0 {
				e.read.signal()
			}
		},
	}
}

// loadCall learns the parked keys of lanes, before anything of a new one is
// read, and how large the rows of a new one are. With many keys it takes long: a
// renewal must not wait for it.
func (s *sweeper) loadCall(lanes []*lane) *call {
	e := s.e
	numbers, changes := make([]outbox.Lane, len(lanes)), make([]int, len(lanes))
	var firsts []outbox.LaneRead
	for i, ln := range lanes {
		numbers[i], changes[i] = ln.lease.Lane, ln.changes
		clear(ln.since)
		if !ln.loaded {
			firsts = append(firsts, outbox.LaneRead{Lane: ln.lease.Lane})
		}
	}
	began := time.Now()
	var parked []outbox.ParkedKey
	spots := make([]outbox.LaneSpot, len(firsts))
	var n int
	return &call{
		timeout: callTimeout,
		do: func(ctx context.Context, ls outbox.LaneStore) (err error) {
			if e.parker != nil {
				parked, err = e.parker.ParkedKeys(ctx, numbers)
			}
			if err == nil && len(firsts) > 0 {
				n, err = ls.SweepLanes(ctx, firsts, spots)
			}
			return err
		},
		end: func(err error) {
			if err != nil {
				return
			}
			e.mu.Lock()
			e.core.listing = time.Since(began)
			e.core.sample(spots[:n])
			for i, ln := range lanes {
				if !ln.closed() && ln.changes == changes[i] {
					e.core.loadParked(ln, parked, e.now())
				}
			}
			e.mu.Unlock()
			e.read.signal()
		},
	}
}

// sample takes rows of lanes that nothing was read of yet: they tell how many
// the next read may ask for.
func (c *core) sample(spots []outbox.LaneSpot) {
	largest := map[*route]int{}
	for _, p := range spots {
		if l := c.lanes[p.Lane]; l != nil {
			largest[l.route] = max(largest[l.route], p.Size+rowOverhead)
		}
	}
	for rt, size := range largest {
		if rt.met {
			size = max(size, rt.size)
		}
		rt.size = size
	}
}

// loadParked takes the parked keys of lane l out of parked.
func (c *core) loadParked(l *lane, parked []outbox.ParkedKey, at time.Time) {
	now := map[string]bool{}
	for _, p := range parked {
		if p.Lane == l.lease.Lane {
			now[string(p.Key)] = true
			if !l.parked[string(p.Key)] {
				c.park(l, string(p.Key))
			}
		}
	}
	var back []string
	for k := range l.parked {
		if !now[k] && !l.since[k] {
			back = append(back, k)
		}
	}
	slices.Sort(back)
	for _, k := range back {
		c.unpark(l, k)
	}
	l.fresh, l.stale, l.loaded, l.moving = false, time.Time{}, true, true
	if len(l.since) > 0 {
		l.stale = at.Add(housekeeping)
	}
}

// parkCall moves the rows of parked and unparking keys.
func (s *sweeper) parkCall(now time.Time) *call {
	e := s.e
	s.park = now.Add(housekeeping)
	leases := e.leases(func(l *lane) bool { return l.moving && !l.fresh })
	if e.parker == nil || len(leases) == 0 {
		return nil
	}
	var moved int
	var back []outbox.ParkedKey
	return &call{
		timeout: callTimeout,
		do: func(ctx context.Context, _ outbox.LaneStore) (err error) {
			moved, back, err = e.parker.MoveParked(ctx, leases, moveRows)
			return err
		},
		end: func(err error) {
			e.mu.Lock()
			for _, ls := range leases {
				l := e.core.lanes[ls.Lane]
				if l == nil || l.lease.Epoch != ls.Epoch {
					continue
				}
				// After an error keys may have been let go that no later call names.
				if err != nil || slices.ContainsFunc(back, func(p outbox.ParkedKey) bool { return p.Lane == ls.Lane }) {
					l.reload()
				}
				l.moving = err != nil || len(l.parked) > 0 || moved == moveRows
			}
			if err == nil && moved == moveRows {
				s.park = time.Now()
			}
			e.mu.Unlock()
		},
	}
}

// leases lists the leases of lanes that are not on their way out.
func (e *engine) leases(want func(*lane) bool) []outbox.LaneLease {
	var ls []outbox.LaneLease
	for _, l := range e.core.list {
		if !l.closed() && l.loaded && want(l) {
			ls = append(ls, l.lease)
		}
	}
	return ls
}
