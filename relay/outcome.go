package relay

import (
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// report takes the outcome of one send.
func (c *core) report(r *row, o transport.Outcome, err error, now time.Time) {
	if r.state != rowSending {
		return
	}
	rt := r.lane.route
	reason := o.String()
	if err != nil {
		reason = err.Error()
	}
	switch o {
	case transport.Accepted:
		rt.accepted++
		rt.down, rt.failures = false, 0
		r.state = rowAccepted
		r.conclude(outbox.SettleAccepted)
		r.out.Later = r.key != nil && r.lane.lease.Dead
		c.outbox = append(c.outbox, r)
		if r.lane.lost.Load() {
			c.orphans[r.Record.ID] = true
		}
		if k := r.key; k != nil {
			k.flight--
			c.advance(k)
		}
		if r == c.solo {
			// The next suspect's attempt is committed with this one's delete.
			c.solo = nil
			c.startSolo(now)
		}
		return
	case transport.Refused:
		rt.down, rt.failures = false, 0
		c.fail(r, true, reason, now)
	case transport.Permanent:
		rt.down, rt.failures = false, 0
		c.giveUp(r, c.opt.Poison, true, reason)
	case transport.Unroutable:
		// Its destination has to be made by somebody; trying on would be a hot
		// loop, and the message itself is sound.
		rt.down, rt.failures = false, 0
		c.giveUp(r, ParkKey, false, reason)
	case transport.Unknown:
		// It counts only if the broker took others meanwhile; else it is the
		// broker that is in trouble, not the message. A send that we cancelled
		// says nothing of either.
		cancelled := r.lane.window.ctx.Err() != nil
		counts := rt.accepted > r.since && !cancelled
		if !counts && !cancelled {
			c.pause(rt, now)
		}
		c.fail(r, counts, reason, now)
	default: // Unsent, Unreachable
		c.putBack(r, o, now)
	}
}

// putBack returns a row that did not go out.
func (c *core) putBack(r *row, o transport.Outcome, now time.Time) {
	l := r.lane
	k := r.key
	if !l.Live() {
		c.seen[evShed]++
	} else if r == c.solo {
		// The attempt committed before is taken back.
		c.pause(l.route, now)
		c.recount(r, false)
		return
	}
	l.pending--
	if l.closed() || !l.Live() {
		c.remove(r)
		c.endSolo(r)
		if k != nil {
			k.flight--
			c.cut(k, 0) // nothing of the key overtakes it
		}
		return
	}
	if k != nil && (k.partial || l.parked[k.name]) {
		// The key is read again from its first row on: an earlier one may have
		// failed in the same Send.
		c.remove(r)
		k.flight--
		c.cut(k, 0)
		return
	}
	if k == nil || o == transport.Unreachable || k.flight == 1 {
		c.pause(l.route, now)
	}
	c.rehold(r)
}

// rehold returns a row that was handed out to those that wait.
func (c *core) rehold(r *row) {
	r.state, r.sent = rowHeld, nil
	r.lane.held++
	k := r.key
	if k == nil {
		c.offer(item{r: r})
		return
	}
	k.flight--
	if k.partial || r.lane.parked[k.name] {
		r.lane.held--
		c.remove(r)
		c.cut(k, 0)
		return
	}
	k.insert(r)
	c.advance(k)
}

// pause takes a route down, with a trial after a while.
func (c *core) pause(rt *route, now time.Time) {
	if rt.down && now.Before(rt.retryAt) {
		return // the rest of the same batch
	}
	if rt.down {
		c.seen[evTrial]++
	}
	rt.down = true
	rt.retryAt = now.Add(c.backoff(min(c.opt.BackoffMax, 5*time.Second), rt.failures))
	rt.failures++
}

// fail settles a failed attempt: a retry, or the end after the last one.
func (c *core) fail(r *row, counts bool, reason string, now time.Time) {
	attempts := r.Record.Attempts
	if r == c.solo {
		attempts-- // counted before the send
	}
	if counts && c.opt.MaxAttempts > 0 && attempts+1 >= c.opt.MaxAttempts {
		c.giveUp(r, c.opt.Poison, true, reason)
		return
	}
	if k := r.key; k != nil {
		// Later rows of the key wait in the table.
		c.cut(k, 0)
	}
	c.settle(r, outbox.SettleFailed, counts, reason, now.Add(c.backoff(c.opt.BackoffMax, attempts)))
}

// giveUp moves a message to the dead letters or parks its key.
func (c *core) giveUp(r *row, p Poison, counts bool, reason string) {
	o := outbox.SettleDead
	if p == ParkKey {
		o = outbox.SettlePark
		if r.key != nil {
			c.cut(r.key, 0)
		}
	}
	c.settle(r, o, counts, reason, time.Time{})
	r.out.Config = r.lane.lease.Config
}

func (c *core) settle(r *row, o outbox.SettleOutcome, counts bool, reason string, at time.Time) {
	if r.lane.lost.Load() {
		// The next owner sends it again; an outcome of ours would be fenced.
		r.lane.pending--
		c.remove(r)
		c.endSolo(r)
		return
	}
	r.state = rowSettling
	r.conclude(o)
	if o == outbox.SettleDead && r.key != nil {
		r.lane.bury() // before it is there: it may be replayed before the answer is here
	}
	r.out.Attempt, r.out.Reason, r.out.RetryAt = counts, outbox.CleanReason(reason), at
	if r == c.solo {
		r.out.Attempt, r.out.TakeBack = false, !counts // it was counted before the send
	}
	c.outbox = append(c.outbox, r)
}

// conclude begins the row's settlement. A row has one at a time.
func (r *row) conclude(o outbox.SettleOutcome) {
	r.out = outbox.Settlement{
		Lane: r.lane.lease.Lane, Epoch: r.lane.lease.Epoch, Pos: r.Pos, ID: r.Record.ID,
		Outcome: o, Attempts: r.Record.Attempts, Hint: r.Hint,
	}
}

// release takes a row out of the memory count.
func (c *core) release(r *row) {
	r.lane.route.rows--
	r.lane.route.bytes -= r.size
}

func (c *core) remove(r *row) {
	c.release(r)
	r.lane.delete(r)
}

// settled takes the store's answer for the outcome of one row. fenced: the lane
// is another's now.
func (c *core) settled(r *row, res outbox.SettleResult, now time.Time) (fenced bool) {
	l, o := r.lane, &r.out
	if res == outbox.Fenced {
		c.seen[evFenced]++
	}
	if o.Outcome == outbox.SettleCount && res == outbox.Settled && !l.lost.Load() && !(o.TakeBack && l.draining) {
		c.counted(r)
		return false
	}
	c.endSolo(r)
	c.release(r)
	l.pending--
	if l.lost.Load() || res == outbox.Fenced {
		c.reads.bury(r) // a read of the lane's next lease may have begun before
		return res == outbox.Fenced && !l.lost.Load()
	}
	k := r.key
	if o.Outcome == outbox.SettleFailed && k != nil {
		// It stays where it is; the key reads it again when it is due.
		l.delete(r)
		if o.RetryAt.After(k.due) {
			k.due = o.RetryAt
		}
		k.flight--
		c.leave(k)
		return false
	}
	if o.Outcome == outbox.SettleCount {
		// Gone, or the lane is on its way out: whoever reads it next decides.
		if !o.TakeBack {
			c.twice = twice{r.Record.ID, o.Attempts + 1}
		}
		l.delete(r)
		if k == nil {
			l.restart() // a sweep would find it too, with its lane clean by then
			return false
		}
		k.flight--
		c.cut(k, 0)
		return false
	}
	r.state = rowDone
	r.Record.Message = outbox.Message{}
	c.reads.bury(r)
	if k == nil || o.Outcome == outbox.SettleAccepted {
		return false
	}
	k.flight--
	if o.Outcome == outbox.SettlePark {
		// By the time of this answer an operator may have let the key go, and a
		// move may have lifted it: the store's list is the truth. It is not read
		// for each key, of which many may be parked one after the other.
		c.park(l, k.name)
		l.since[k.name] = true
		if l.stale.IsZero() {
			l.stale = now.Add(max(housekeeping, 20*c.listing))
		}
		return false
	}
	c.advance(k)
	return false
}

// park stops a key until an operator lets it go.
func (c *core) park(l *lane, name string) {
	l.parked[name] = true
	l.still[outbox.KeyHash([]byte(name))] = true
	l.moving = true
	c.seen[evPark]++
	if k := l.keys[name]; k != nil {
		c.cut(k, 0)
	}
}

// unpark reads a key afresh whose rows are all back.
func (c *core) unpark(l *lane, name string) {
	delete(l.parked, name)
	delete(l.still, outbox.KeyHash([]byte(name)))
	c.seen[evUnpark]++
	k := l.keys[name]
	if k == nil {
		k = l.key(name)
	}
	c.cut(k, 0)
}

// takeOutcomes hands over up to n outcomes to be settled. What a lost lane did
// not get accepted is the next owner's business.
func (c *core) takeOutcomes(n int) []*row {
	var batch []*row
	i := 0
	for ; i < len(c.outbox) && len(batch) < n; i++ {
		r := c.outbox[i]
		c.outbox[i] = nil
		if r.lane.lost.Load() && r.out.Outcome != outbox.SettleAccepted {
			r.lane.pending--
			c.remove(r)
			c.endSolo(r)
			continue
		}
		batch = append(batch, r)
	}
	if c.outbox = c.outbox[i:]; len(c.outbox) == 0 {
		c.outbox = nil
	}
	return batch
}
