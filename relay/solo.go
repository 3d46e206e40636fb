package relay

import (
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

// A message that kills the process that sends it would kill every relay in
// turn. So no row is handed to a sender before its lane's tried_to, which runs
// ahead of it, is committed; when an owner has died, the rows up to there are
// suspects. They go one at a time in the whole relay, each with an attempt
// committed first: only a crash during such a send counts, and nothing else of
// the lane stands accused. Any other outcome replaces that attempt.

// head is the row that an item stands for.
func (it item) head() *row {
	if it.k != nil {
		return it.k.queue[0]
	}
	return it.r
}

// startSolo takes the next suspect and has its attempt counted.
func (c *core) startSolo(now time.Time) {
	if c.solo != nil || c.hold || c.stopped {
		return
	}
	for i := 0; i < len(c.suspects); {
		it := c.suspects[i]
		var r *row
		switch {
		case it.k != nil && !it.k.lane.closed() && len(it.k.queue) > 0 && it.k.flight == 0:
			r = it.k.queue[0]
		case it.r != nil && !it.r.lane.closed() && it.r.state == rowHeld:
			r = it.r
		}
		if r != nil && r.lane.route.down && now.Before(r.lane.route.retryAt) {
			i++ // its turn comes; suspects of other routes do not wait for it
			continue
		}
		c.suspects = slices.Delete(c.suspects, i, i+1)
		if it.k != nil {
			it.k.listed = false
		}
		if r == nil {
			if it.k != nil {
				c.advance(it.k)
			}
			continue
		}
		if it.k != nil {
			it.k.pop()
		}
		if !c.handOut(r) {
			continue // it cannot be decoded
		}
		alone := r.Record.LastError == soloReason
		again := alone && c.twice == (twice{r.Record.ID, r.Record.Attempts})
		if alone && !again && c.opt.MaxAttempts > 0 && r.Record.Attempts >= c.opt.MaxAttempts {
			// With any other last error its last send had an outcome: it was
			// parked then, and an operator has let it go.
			c.giveUp(r, c.opt.Poison, false, "the process ended each time it sent this message")
			continue
		}
		c.seen[evSolo]++
		if again {
			// Its attempt is committed, and nobody has died since.
			c.solo = r
			r.Record.Attempts--
			r.conclude(outbox.SettleCount)
			c.counted(r)
			return
		}
		c.recount(r, true)
		return
	}
}

// soloReason is the last error of a row that was sent alone, until that send has
// an outcome.
const soloReason = "sent alone after a crash"

// twice is a row whose attempt may have been committed without an answer, or
// whose send alone a lost lease has interrupted: read again with one attempt more,
// it is not counted a second time.
type twice struct {
	id       outbox.ID
	attempts int
}

// givenUp is how a lane was given up.
type givenUp struct {
	epoch   int64
	suspect int64 // see lane
}

// accused tells whether suspects of a lane may still have to be sent alone: it is
// not clean before that, whoever has it. Rows that are left to the table count by
// their key, parked ones do not: somebody looks at those before they go out.
func (c *core) accused(l *lane) bool {
	switch {
	case l.draining:
		return l.unclean
	case l.suspect == 0:
		return false
	case !l.whole || len(l.partial) > 0:
		return true
	}
	for pos, r := range l.rows {
		if pos <= l.suspect && (r.state == rowHeld || r.state == rowSending || r.state == rowSettling) {
			return true
		}
	}
	if len(l.parked) == 0 {
		l.suspect = 0
	}
	return false
}

// leaving is the lease of a lane as it is given back.
func (c *core) leaving(l *lane) outbox.LaneLease {
	ls := l.lease
	ls.Unclean = c.accused(l)
	return ls
}

// interrupt notes that the solo row's lane is given up: the process lives, so
// that its attempt is not one that counts.
func (c *core) interrupt(l *lane) {
	switch r := c.solo; {
	case r == nil || r.lane != l:
	case r.state != rowSettling:
		c.twice = twice{r.Record.ID, r.Record.Attempts}
	case r.out.Outcome == outbox.SettleCount && !r.out.TakeBack:
		c.twice = twice{r.Record.ID, r.Record.Attempts + 1}
	}
}

// recount commits the attempt of a solo send, or takes it back.
func (c *core) recount(r *row, up bool) {
	c.solo = nil // for settle: it is not the outcome of the send
	c.settle(r, outbox.SettleCount, up, soloReason, time.Time{})
	if r.state == rowSettling {
		r.out.TakeBack = !up
		c.solo = r
	}
}

// counted takes the commit of recount: the row may go, or waits again.
func (c *core) counted(r *row) {
	r.lane.pending--
	if r.out.TakeBack {
		r.Record.Attempts--
		c.endSolo(r)
		c.rehold(r)
		return
	}
	r.Record.Attempts++
	if c.stopped || r.lane.draining {
		r.lane.pending++
		c.recount(r, false) // it will not be sent
		return
	}
	r.state = rowHeld
	r.lane.held++
	r.lane.route.ready = slices.Insert(r.lane.route.ready, 0, item{r: r})
}

// unsolo takes the attempt of a solo row back that is not sent after all: the
// relay stops, or gives the lane back.
func (c *core) unsolo() {
	if r := c.solo; r != nil && r.state == rowHeld {
		r.lane.held--
		r.lane.pending++
		c.recount(r, false)
	}
}

func (c *core) endSolo(r *row) {
	if c.solo == r {
		c.solo = nil
	}
}

// pop hands the key's head out.
func (k *key) pop() *row {
	r := k.queue[0]
	k.queue[0] = nil
	k.queue = k.queue[1:]
	k.flight++
	return r
}

// events counts what happened, for tests that must have met it.
type events [evCount]int

const (
	evLateCommit = iota // a key's earlier row committed below the cursor
	evFound             // a row below the cursor that nobody held was read
	evGrave             // a late read returned a row that had left the table
	evOrphan            // a row was read again while its delete was on its way
	evTakeover          // a lane of a dead owner
	evSolo              // a suspect sent alone
	evFenced            // an outcome was refused by the fence
	evShed              // a row was not sent because the lease had ended
	evTrial             // a lost route was tried in vain
	evTrim              // a hot key's tail was left to the table
	evPark              // a key was parked
	evUnpark            // a key was unparked
	evRefused           // a settle failed
	evWindow            // a window ended
	evSeen              // a read named keys that need not be looked for below it
	evStranger          // one of those was another key's, or had been forgotten
	evCount
)
