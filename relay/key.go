package relay

import (
	"container/heap"
	"slices"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// rowState is where a row in memory stands. A lane knows each row it holds by
// position and id, so that no read can hand it out a second time; positions
// alone can be used again after a failover.
type rowState uint8

const (
	rowHeld     rowState = iota // waiting for its turn
	rowSending                  // handed to a sender
	rowAccepted                 // the broker has it; the delete is not answered
	rowSettling                 // any other outcome, not committed yet
	rowDone                     // gone from the table; remembered until older reads have returned
)

type row struct {
	outbox.LaneRow
	lane    *lane
	key     *key // nil: unordered
	state   rowState
	size    int
	out     outbox.Settlement   // its outcome, on its way to the store
	refused bool                // by the database, and told
	sent    *transport.Delivery // the send under way; reports of others are ignored
	since   uint64              // the route's accepted count when it was sent
	to      reporter            // who hears the outcome
}

// Reported implements transport.Sink.
func (r *row) Reported(d *transport.Delivery) { r.to.reported(r, d) }

type reporter interface {
	reported(r *row, d *transport.Delivery)
}

// lane is one lease: a lane taken again is a new lane.
type lane struct {
	lease  outbox.LaneLease
	route  *route
	window *window

	cursor  int64 // every row at or below was seen: held, sent or its key is blocked
	more    bool  // the last read above the cursor was full
	full    time.Time
	rows    map[int64]*row // by position: held, on their way, or remembered
	keys    map[string]*key
	partial map[int64]*key // those that are partial, by hash; one of a hash
	parked  map[string]bool
	still   map[int64]bool // hashes of the parked keys
	seen    seenKeys
	moving  bool  // parked keys may have rows to move
	tried   int64 // rows up to here may be handed out
	want    int64 // tried_to as it is to be
	ahead   int64 // by how much the next raise runs ahead
	top     int64 // the highest position handed out so far
	paced   int64 // what it was at the last raise
	raised  time.Time
	suspect int64  // rows up to here are sent alone
	whole   bool   // read to its end since reads started over
	untried []item // rows that wait for tried_to
	held    int    // rows in memory that were not handed out
	pending int    // rows handed out whose outcome is not settled

	fresh    bool            // its parked keys are to be read
	stale    time.Time       // when they are to be read once more
	since    map[string]bool // parked by a message since that read began
	changes  int             // of its parked keys, made by commands and moves
	loaded   bool            // its parked keys are known
	draining bool            // to be given back once pending is 0
	unclean  bool            // and some of its suspects were not sent
	promotes bool            // rows of it may be on their way to new positions
	lost     atomic.Bool     // not ours any more; senders ask without the lock
}

// Live implements transport.Lease.
func (l *lane) Live() bool { return !l.lost.Load() && l.window.live() }

// reload has the parked keys read again after a command or a call that has, or
// may have, changed them. A read of them that is under way does not count: it may
// be older than the change, and park a key for ever, or let one go, that the table
// does not.
func (l *lane) reload() {
	l.fresh = true
	l.changes++
}

// restart has the lane read again from its start.
func (l *lane) restart() {
	l.cursor, l.more, l.whole = 0, true, false
	l.seen.clear()
}

func (l *lane) closed() bool { return l.draining || l.lost.Load() }

// known tells whether the row is in memory or remembered.
func (l *lane) known(lr *outbox.LaneRow) bool {
	r := l.rows[lr.Pos]
	return r != nil && (r.Record.ID == lr.Record.ID || r.state != rowDone)
}

func (l *lane) key(name string) *key {
	k := &key{lane: l, name: name}
	l.keys[name] = k
	return k
}

func (l *lane) delete(r *row) {
	if l.rows[r.Pos] == r {
		delete(l.rows, r.Pos)
	}
}

// cutAt is the index of the first queued row above pos.
func (k *key) cutAt(pos int64) int {
	i := len(k.queue)
	for i > 0 && k.queue[i-1].Pos > pos {
		i--
	}
	return i
}

// key is the state of one ordering key that has rows in memory or is blocked.
// The queue is a prefix of the key's undelivered rows, in order; when partial
// is set, rows beyond it exist in the table only and are read through the key
// index once the queue is empty, nothing is in flight and due has come. That
// one mechanism serves retries, late commits, rows under a claim, hot keys and
// unparking.
type key struct {
	lane    *lane
	name    string // its bytes, not in the memory of a row, which it outlives
	queue   []*row
	flight  int   // handed out and not finished
	hash    int64 // of the name, once it was partial
	partial bool  // the table has rows of this key that are not in the queue
	reading bool  // a read of this key is under way
	missed  bool  // a row was left in the table since that read began
	listed  bool  // in the route's ready list
	due     time.Time
}

// block sets partial.
func (k *key) block(on bool) {
	if k.partial == on {
		return
	}
	k.partial = on
	if on {
		k.hash = outbox.KeyHash([]byte(k.name))
		k.lane.partial[k.hash] = k
	} else if k.lane.partial[k.hash] == k {
		delete(k.lane.partial, k.hash)
	}
}

func (k *key) idle() bool { return len(k.queue) == 0 && k.flight == 0 }

// insert puts r at its place by position.
func (k *key) insert(r *row) {
	k.queue = slices.Insert(k.queue, k.cutAt(r.Pos), r)
}

// dueKeys is a heap of keys by the time they want to be read. Entries may be
// out of date; whoever takes one checks the key.
type dueKey struct {
	at time.Time
	k  *key
}

type dueKeys []dueKey

func (h dueKeys) Len() int           { return len(h) }
func (h dueKeys) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueKeys) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueKeys) Push(x any)        { *h = append(*h, x.(dueKey)) }
func (h *dueKeys) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = dueKey{}
	*h = old[:len(old)-1]
	return x
}

func (h *dueKeys) add(k *key, at time.Time) { heap.Push(h, dueKey{at, k}) }

// route is a named transport with the rows that are ready for it.
type route struct {
	name      string
	transport transport.Transport
	pipelines bool

	ready    []item // in the order in which they became ready
	batches  int    // Sends under way
	accepted uint64 // messages accepted so far

	rows  int  // in memory
	bytes int  // their size
	size  int  // that rows may have: follows large ones at once, small ones slowly
	met   bool // rows of it were read
	turn  int  // where the next read of some of its lanes begins
	full  bool

	down     bool // the broker was lost: nothing is read, one message tries
	failures int
	retryAt  time.Time
	kick     chan struct{}
}

// item is one thing ready to send: an unordered row, or a key whose head may
// go.
type item struct {
	r *row
	k *key
}

// grave remembers a row that left the table until every read that began before
// is back: such a read may still return it.
type grave struct {
	r     *row
	stamp uint64
}

// readLog numbers the reads, so that graves know when they may be forgotten.
type readLog struct {
	next   uint64
	active []uint64
	graves []grave

	orphans map[outbox.ID]bool // the core's; an orphan is buried, too
}

func (l *readLog) begin() uint64 {
	l.next++
	l.active = append(l.active, l.next)
	return l.next
}

func (l *readLog) end(id uint64) {
	l.active = slices.DeleteFunc(l.active, func(a uint64) bool { return a == id })
	oldest := l.next + 1
	for _, a := range l.active {
		oldest = min(oldest, a)
	}
	n := 0
	for ; n < len(l.graves) && l.graves[n].stamp < oldest; n++ {
		l.forget(l.graves[n].r)
		l.graves[n] = grave{}
	}
	l.graves = l.graves[n:]
}

func (l *readLog) bury(r *row) {
	if len(l.active) == 0 {
		l.forget(r)
		return
	}
	l.graves = append(l.graves, grave{r, l.next})
}

func (l *readLog) forget(r *row) {
	r.lane.delete(r)
	delete(l.orphans, r.Record.ID)
}
