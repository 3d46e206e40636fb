package relay

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// core holds the decisions of a relay over lanes: what to read, what may be
// sent, what to settle. It does no I/O, starts nothing and asks no clock; "now"
// is the database's time. The engine calls it under its lock.
type core struct {
	opt     *Options
	draw    func(n int64) int64 // in [0, n)
	to      reporter
	routes  []*route // by name
	lanes   map[outbox.Lane]*lane
	list    []*lane            // the same, by number
	orphans map[outbox.ID]bool // accepted under a lease that ended, delete not answered
	reads   readLog
	due     dueKeys
	outbox  []*row                  // to be settled, oldest first
	fenced  map[outbox.Lane]int64   // epochs that turned out to be another's
	dropped map[outbox.Lane]givenUp // last
	stopped bool                    // nothing new is sent
	listing time.Duration           // that the last read of parked keys took

	suspects []item // rows to be sent alone, see solo.go
	solo     *row   // the one that is
	twice    twice
	seen     events             // what happened so far
	taken    []outbox.LaneLease // lanes of dead owners, for the hook

	// hold stops new sends after a lost store connection, until a renewal that
	// began later has succeeded: a row that another owner may have sent must
	// not go out on the strength of what was read before.
	hold bool

	often, most int // of seenKeys
}

const (
	laneRows    = 2048                   // rows held per lane before its reads pause
	keyRows     = 64                     // rows a key keeps when its lane is trimmed
	starved     = 100 * time.Millisecond // a full lane for that long is trimmed
	claimPause  = time.Second            // until a row under somebody's claim is looked at again
	readRows    = 1024                   // rows a read aims at
	aheadMin    = 64                     // positions by which tried_to runs ahead at least
	aheadMax    = 4000                   // and at most
	aheadTime   = 400 * time.Millisecond // how long they are to last: a quarter of it is longer than a slow settle
	rowOverhead = 512                    // bytes a row costs beside its message
)

func newCore(opt *Options, to reporter) *core {
	orphans := map[outbox.ID]bool{}
	return &core{
		opt: opt, to: to, draw: rand.Int64N,
		lanes:   map[outbox.Lane]*lane{},
		orphans: orphans,
		reads:   readLog{orphans: orphans},
		fenced:  map[outbox.Lane]int64{},
		dropped: map[outbox.Lane]givenUp{},
		often:   seenOften, most: seenMost,
	}
}

// backoff is the wait after n failures, at most hi.
func (c *core) backoff(hi time.Duration, n int) time.Duration {
	return jitter(c.draw, c.opt.BackoffMin, hi, n)
}

// grant takes over the lanes of a renewal and drops those it no longer names,
// which it returns.
func (c *core) grant(leases []outbox.LaneLease, w *window) (lost []*lane) {
	named := make(map[outbox.Lane]bool, len(leases))
	for _, ls := range leases {
		i := slices.IndexFunc(c.routes, func(rt *route) bool { return rt.name == ls.Route })
		if i < 0 || ls.Epoch <= c.fenced[ls.Lane] {
			continue // an answer older than the fence
		}
		named[ls.Lane] = true
		l := c.lanes[ls.Lane]
		if l != nil && l.lease.Epoch == ls.Epoch {
			if ls.Dead {
				l.bury()
			}
			c.accused(l)
			if l.lease.Config != ls.Config {
				l.lease.Config = ls.Config
				l.reload()
			}
			continue
		}
		if l != nil {
			c.drop(l)
			lost = append(lost, l)
		}
		l = &lane{
			lease: ls, route: c.routes[i], window: w, more: true, fresh: true,
			tried: ls.TriedTo, want: ls.TriedTo, top: ls.TriedTo, paced: ls.TriedTo, ahead: aheadMin,
			rows: map[int64]*row{}, keys: map[string]*key{}, partial: map[int64]*key{}, parked: map[string]bool{}, still: map[int64]bool{}, since: map[string]bool{},
			seen: seenKeys{often: c.often, most: c.most},
		}
		switch was := c.dropped[ls.Lane]; {
		case !ls.Unclean:
		case was.epoch == ls.Epoch-1:
			// Its owner was an earlier window of ours, and nobody died of what that sent.
			l.suspect = was.suspect
		default:
			l.suspect = ls.TriedTo
			c.seen[evTakeover]++
			c.taken = append(c.taken, ls)
		}
		c.lanes[ls.Lane] = l
		c.list = append(c.list, l)
	}
	slices.SortFunc(c.list, func(a, b *lane) int { return int(a.lease.Lane - b.lease.Lane) })
	for _, l := range slices.Clone(c.list) {
		if !named[l.lease.Lane] {
			c.drop(l)
			lost = append(lost, l)
		}
	}
	return lost
}

// unloaded lists the lanes whose parked keys are to be read: new ones, those an
// operator has changed, and after a while those in which a message has parked
// its key.
func (c *core) unloaded(now time.Time) (ls []*lane) {
	for _, l := range c.list {
		if (l.fresh || !l.stale.IsZero() && !now.Before(l.stale)) && !l.closed() {
			ls = append(ls, l)
		}
	}
	return ls
}

// drained tells whether a lane waits to be given back.
func (c *core) drained() bool {
	return slices.ContainsFunc(c.list, func(l *lane) bool { return l.draining && l.pending == 0 })
}

// drop gives a lane up at once. What is on the wire is reported later; an
// accepted row is still deleted, everything else is left to the next owner.
func (c *core) drop(l *lane) {
	was := givenUp{epoch: l.lease.Epoch}
	if c.accused(l) {
		was.suspect = l.suspect
	}
	c.interrupt(l)
	l.lost.Store(true)
	c.forget(l)
	for _, r := range l.rows {
		if r.state == rowAccepted {
			c.orphans[r.Record.ID] = true
		}
	}
	if c.lanes[l.lease.Lane] == l {
		delete(c.lanes, l.lease.Lane)
		c.dropped[l.lease.Lane] = was
		c.list = slices.DeleteFunc(c.list, func(o *lane) bool { return o == l })
	}
}

// drain stops a lane's reads and sends; it can be given back when pending is 0.
func (c *core) drain(l *lane) {
	l.unclean = c.accused(l)
	l.draining = true
	if c.solo != nil && c.solo.lane == l {
		c.unsolo()
	}
	c.forget(l)
}

// forget drops the rows of a lane that were not handed out.
func (c *core) forget(l *lane) {
	for _, r := range l.rows {
		if r.state == rowHeld {
			c.unhold(r)
			c.endSolo(r)
		}
	}
	for _, k := range l.keys {
		k.queue = nil
	}
}

// restart sets every cursor to zero: after a lost connection nothing that was
// read proves what the table holds now.
func (c *core) restart() {
	for _, l := range c.list {
		l.restart()
	}
}

// room tells whether the route's buffer takes more rows: it is full when less
// than an eighth is left, and then until a quarter is free, so that reads stay
// large.
func (c *core) room(rt *route) bool {
	part := 8
	if rt.full {
		part = 4
	}
	rows, bytes := c.opt.BufferRows-c.opt.BufferRows/part, c.opt.BufferBytes-c.opt.BufferBytes/part
	rt.full = rt.rows >= rows || rt.bytes >= bytes
	return !rt.full
}

// planRead names the lanes to read above their cursors: all of them, or only
// those whose last read was full. limit is the rows per lane.
func (c *core) planRead(all bool, now time.Time) (ls []*lane, limit int) {
	limit = outbox.LaneLimits[len(outbox.LaneLimits)-1]
	for _, l := range c.list {
		rt := l.route
		switch {
		case l.closed() || !l.loaded || !(all || l.more):
			continue
		case !rt.takes(now):
			continue
		case l.held >= laneRows || !c.room(rt):
			if l.full.IsZero() {
				l.full = now
			} else if now.Sub(l.full) >= starved {
				c.trimLane(l)
			}
			continue
		}
		l.full = time.Time{}
		ls = append(ls, l)
	}
	if ls = c.fit(ls); len(ls) > 0 {
		for _, l := range ls {
			limit = min(limit, c.readLimit(l.route, len(ls)))
		}
	}
	return ls, limit
}

// fit leaves out lanes of routes whose buffer has no room for a row of each. They
// come next: a route's lanes take turns.
func (c *core) fit(ls []*lane) []*lane {
	for _, rt := range c.routes {
		var own []*lane
		for _, l := range ls {
			if l.route == rt {
				own = append(own, l)
			}
		}
		room := c.budget(rt)
		if len(own) <= room {
			continue
		}
		rt.turn %= len(own)
		own = append(own[rt.turn:], own[:rt.turn]...)
		rt.turn += room
		for _, l := range own[room:] {
			l.more = true
		}
		ls = slices.DeleteFunc(ls, func(l *lane) bool { return slices.Contains(own[room:], l) })
	}
	return ls
}

// budget is how many rows fit the route's buffer, at least one.
func (c *core) budget(rt *route) int {
	return max(min(readRows, c.opt.BufferRows-rt.rows, (c.opt.BufferBytes-rt.bytes)/rt.size), 1)
}

// tooLarge has the routes of reads that got no answer in time ask for half as
// much: the same again would take as long again.
func (c *core) tooLarge(reads []outbox.LaneRead) {
	for _, rt := range c.routes {
		if slices.ContainsFunc(reads, func(rd outbox.LaneRead) bool { l := c.lanes[rd.Lane]; return l != nil && l.route == rt }) {
			rt.size = min(2*max(rt.size, c.opt.BufferBytes/readRows), c.opt.BufferBytes)
		}
	}
}

// readLimit is the rows per range of a read of n ranges that fits the route's
// buffer.
func (c *core) readLimit(rt *route, n int) int {
	return max(outbox.LaneLimit(c.budget(rt), n), 1)
}

// trimLane leaves the tails of long keys to the table, so that the keys behind
// them in the lane are not starved.
func (c *core) trimLane(l *lane) {
	for _, k := range l.keys {
		if len(k.queue) > keyRows {
			c.seen[evTrim]++
			c.cut(k, keyRows)
		}
	}
	l.full = time.Time{}
}

// cut leaves the rows of k from index i on to the table.
func (c *core) cut(k *key, i int) {
	for _, r := range k.queue[i:] {
		c.unhold(r)
	}
	clear(k.queue[i:])
	k.queue = k.queue[:i]
	c.leave(k)
}

// leave notes that rows of k stand in the table only.
func (c *core) leave(k *key) {
	k.block(true)
	k.missed = true
	c.advance(k)
}

// unhold forgets a row that was not handed out.
func (c *core) unhold(r *row) {
	r.lane.held--
	c.release(r)
	r.lane.delete(r)
}

// missing tells whether the row at p has to be read: nobody holds it, and its
// key neither waits for a read of its own nor is parked. Of parked keys only the
// hash is compared, so whole sweeps read their rows all the same: a row of
// another key with that hash must not wait for the unparking.
func (c *core) missing(l *lane, p *outbox.LaneSpot, whole bool) bool {
	switch r := l.rows[p.Pos]; {
	case r != nil && (r.Record.ID == p.ID || r.state != rowDone):
		if r.state == rowDone {
			c.seen[evGrave]++
		}
		return false
	case c.orphans[p.ID]:
		c.seen[evOrphan]++
		return false
	}
	if k := l.partial[p.KeyHash]; k != nil && p.KeyHash != 0 {
		k.missed = true
		return false
	}
	return whole || !l.still[p.KeyHash]
}

// admit takes one row that the read rd returned, from whatever range, unless it
// is known already. The cursor may pass it afterwards: it is held, or its key is
// partial.
func (c *core) admit(l *lane, rd *outbox.LaneRead, lr *outbox.LaneRow, now time.Time) {
	if l.known(lr) {
		if l.rows[lr.Pos].state == rowDone {
			c.seen[evGrave]++
		}
		return
	}
	if c.orphans[lr.Record.ID] {
		c.seen[evOrphan]++
		return
	}
	bytes := lr.Record.Message.Key
	waits := lr.Claimed || lr.RetryAt.After(now)
	if bytes == nil {
		if !waits { // else a sweep meets it again
			c.offer(item{r: c.keep(l, lr, nil)})
		}
		return
	}
	if l.parked[string(bytes)] {
		return
	}
	k := l.keys[string(bytes)]
	if k == nil {
		k = l.key(string(bytes))
	}
	if k.partial {
		k.missed = true
		return
	}
	if !l.seen.holds(rd, lr.KeyHash, bytes) {
		c.seen[evStranger]++
		c.cut(k, 0)
		return
	}
	if lr.KeyPrev != 0 && l.rows[lr.KeyPrev] == nil {
		// A row of this key committed late, below what was read: it goes first.
		// Everything of the key above it is read again, in order.
		c.seen[evLateCommit]++
		c.cut(k, k.cutAt(lr.KeyPrev))
		return
	}
	if waits {
		k.due = later(k.due, lr, now)
		c.cut(k, k.cutAt(lr.Pos))
		return
	}
	r := c.keep(l, lr, k)
	k.insert(r)
	l.note(r)
	c.advance(k)
}

// later is when a key blocked by lr wants to be looked at.
func later(due time.Time, lr *outbox.LaneRow, now time.Time) time.Time {
	at := lr.RetryAt
	if lr.Claimed {
		at = now.Add(claimPause)
	}
	if at.After(due) {
		return at
	}
	return due
}

func (c *core) keep(l *lane, lr *outbox.LaneRow, k *key) *row {
	r := &row{LaneRow: *lr, lane: l, key: k, to: c.to, size: lr.Record.Message.Size() + rowOverhead}
	rt := l.route
	l.rows[lr.Pos] = r
	l.held++
	rt.rows++
	rt.bytes += r.size
	rt.met = true
	rt.size = max(r.size, rt.size-(rt.size-r.size)/16)
	return r
}

// advance lets the key go on: its head becomes ready, or it asks to be read,
// or, having nothing left, it is forgotten.
func (c *core) advance(k *key) {
	l := k.lane
	if l.closed() || k.reading {
		return
	}
	switch {
	case l.parked[k.name]:
		if k.idle() && l.keys[k.name] == k {
			k.block(false)
			delete(l.keys, k.name)
		}
	case len(k.queue) > 0:
		if !k.listed && k.flight == 0 {
			k.listed = true
			c.offer(item{k: k})
		}
	case k.flight > 0:
	case k.partial:
		c.due.add(k, k.due)
	default:
		if l.keys[k.name] == k {
			delete(l.keys, k.name)
		}
	}
}

// planKeys names up to n keys that are due to be read through the key index.
func (c *core) planKeys(n int, now time.Time) (ks []*key, limit int) {
	limit = outbox.LaneLimits[len(outbox.LaneLimits)-1]
	var full []*key
	for len(ks) < n && len(c.due) > 0 && !c.due[0].at.After(now) {
		k := heap.Pop(&c.due).(dueKey).k
		n = min(n, c.budget(k.lane.route))
		if k.lane.closed() || !k.partial || k.reading || !k.idle() || k.due.After(now) || k.lane.keys[k.name] != k {
			continue
		}
		if !c.room(k.lane.route) {
			full = append(full, k)
			continue
		}
		k.reading, k.missed = true, false
		ks = append(ks, k)
	}
	for _, k := range full {
		c.due.add(k, now.Add(c.opt.PollMin))
	}
	for _, k := range ks {
		limit = min(limit, c.readLimit(k.lane.route, len(ks)))
	}
	return ks, limit
}

// nextDue is when the next key wants to be read; zero if none does.
func (c *core) nextDue() time.Time {
	if len(c.due) == 0 {
		return time.Time{}
	}
	return c.due[0].at
}

// readKey takes what a read of key k returned: its undelivered rows from the
// first on.
func (c *core) readKey(k *key, rows []outbox.LaneRow, limit int, now time.Time) {
	k.reading = false
	l := k.lane
	if l.closed() || l.parked[k.name] {
		c.advance(k)
		return
	}
	full := len(rows) == limit
	k.due = time.Time{}
	k.block(full || k.missed)
	for i := range rows {
		lr := &rows[i]
		if l.known(lr) || c.orphans[lr.Record.ID] {
			continue
		}
		if lr.Claimed || lr.RetryAt.After(now) {
			k.block(true)
			k.due = later(k.due, lr, now)
			break
		}
		r := c.keep(l, lr, k)
		k.insert(r)
		l.note(r)
	}
	if len(k.queue) == 0 && k.partial && k.due.IsZero() {
		// Only rows whose delete is on its way: look again when it is done.
		k.due = now.Add(c.opt.PollMin)
	}
	c.advance(k)
}

// unreadKey notes that a read of key k failed.
func (c *core) unreadKey(k *key, now time.Time) {
	k.reading = false
	k.due = now.Add(c.opt.PollMin)
	c.advance(k)
}

// takes tells whether the route wants rows: while its broker is lost, only one
// to try with, when it is time.
func (rt *route) takes(now time.Time) bool {
	return !rt.down || len(rt.ready) == 0 && !now.Before(rt.retryAt)
}

// seenAll notes that a lane was read to its end: a row that shows itself later
// was not committed when the lane's last owner died, and is no suspect.
func (c *core) seenAll(l *lane) {
	l.suspect = min(l.suspect, l.cursor)
	l.whole = true
}

// offer puts a row, or a key's head, where it waits for a sender: among the
// suspects, or ready.
func (c *core) offer(it item) {
	r := it.head()
	l := r.lane
	if r.Pos <= l.suspect {
		c.suspects = append(c.suspects, it)
	} else {
		l.route.ready = append(l.route.ready, it)
	}
}

// tries tells whether an item that is ready may be handed out. If not it waits for
// the commit that raises tried_to.
func (l *lane) tries(it item) bool {
	r := it.head()
	if r.Pos <= l.tried {
		return true
	}
	l.untried = append(l.untried, it)
	l.raise(r.Pos)
	return false
}

// raise asks for a higher tried_to when a row is handed out, or would be: by what
// was merely read, a whole backlog would be suspect after a crash. It asks with a
// quarter of the last raise left already, so that the next one rides with a settle
// and no row waits for a commit of its own.
func (l *lane) raise(pos int64) {
	if l.want == l.tried && pos > l.tried-l.ahead/4 {
		l.want = pos + l.ahead
	}
}

// triedTo takes the commit that raised tried_to of lane l. The further it runs
// ahead, the fewer raises there are, and urgent ones above all, and the more rows are
// suspects after a crash: so it follows the pace, and a burst for a while only.
func (c *core) triedTo(l *lane, pos int64, now time.Time) {
	l.tried = max(l.tried, pos)
	took := max(now.Sub(l.raised), time.Millisecond)
	pace := int64(float64(l.top-l.paced) * aheadTime.Seconds() / took.Seconds())
	l.ahead = min(max(pace, aheadMin), 4*l.ahead, aheadMax)
	l.raised, l.paced = now, l.top
	items := l.untried
	l.untried = nil
	for _, it := range items {
		switch {
		case l.closed():
		case it.k != nil:
			it.k.listed = false
			c.advance(it.k)
		case it.r.state == rowHeld:
			c.offer(it)
		}
	}
}

// takeBatch hands out up to the batch size of rows that may be sent now. Rows
// that cannot be decoded become dead letters at their turn.
func (c *core) takeBatch(rt *route, now time.Time) []*row {
	limit := c.opt.Batch
	c.startSolo(now)
	if c.hold || c.stopped || rt.batches >= c.opt.InFlight {
		return nil
	}
	if rt.down {
		// One message tries whether the broker is back.
		if rt.batches > 0 || now.Before(rt.retryAt) {
			return nil
		}
		limit = 1
	}
	var batch []*row
	size, n := 0, 0
	for ; n < len(rt.ready) && len(batch) < limit && size < maxBatchBytes; n++ {
		it := rt.ready[n]
		if it.r != nil && it.r == c.solo {
			if len(batch) > 0 {
				break // alone, in the next Send
			}
			limit = 1
		}
		rt.ready[n] = item{}
		if it.k == nil {
			if it.r == c.solo && it.r.key != nil && it.r.lane.parked[it.r.key.name] {
				c.unsolo() // parked while it waited for the broker
				continue
			}
			if r := it.r; !r.lane.closed() && r.state == rowHeld && r.lane.tries(it) && c.handOut(r) {
				batch, size = append(batch, r), size+r.size
			}
			continue
		}
		k := it.k
		closed := k.lane.closed()
		if !closed && len(k.queue) > 0 && !k.lane.tries(it) {
			continue // it stays listed
		}
		k.listed = false
		if closed {
			continue
		}
		// More than one row of a key only where the transport keeps their
		// order, and never in two Sends at once.
		for len(k.queue) > 0 && (k.flight == 0 || rt.pipelines) && len(batch) < limit && size < maxBatchBytes {
			if r := k.queue[0]; r.Pos > k.lane.tried {
				k.lane.raise(r.Pos)
				break
			}
			r := k.pop()
			if !c.handOut(r) {
				break // a dead letter first; the key goes on when it is written
			}
			batch, size = append(batch, r), size+r.size
		}
		if k.flight == 0 {
			c.advance(k)
		}
	}
	rt.ready = rt.ready[n:]
	if len(rt.ready) == 0 {
		rt.ready = nil
	}
	if len(batch) > 0 {
		rt.batches++
	}
	return batch
}

// maxBatchBytes bounds the bodies of one Send.
const maxBatchBytes = 4 << 20

// handOut moves a row from held to sending. false: it cannot be sent and is
// settled as dead.
func (c *core) handOut(r *row) bool {
	l := r.lane
	l.held--
	l.pending++
	l.top = max(l.top, r.Pos)
	l.raise(r.Pos)
	r.state, r.since = rowSending, l.route.accepted
	if r.Err == nil {
		return true
	}
	c.settle(r, outbox.SettleDead, false, r.Err.Error(), time.Time{})
	return false
}

// sends counts the Sends under way.
func (c *core) sends() (n int) {
	for _, rt := range c.routes {
		n += rt.batches
	}
	return n
}

// pending counts the messages handed out whose outcome is not written.
func (c *core) pending() (n int) {
	for _, l := range c.list {
		n += l.pending
	}
	for _, r := range c.outbox {
		if r.lane.lost.Load() {
			n++
		}
	}
	return n
}
