package histories_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
)

func tokenOf(n int) (t outbox.Token) {
	binary.BigEndian.PutUint64(t[:], uint64(n))
	return t
}

// contract calls one of the five methods that change a row under a claim.
func (c *client) contract(ctx context.Context, o *op, cancel time.Duration) {
	cl := outbox.Claim{ID: c.rows[o.row].id, Token: tokenOf(o.token)}
	now, expires := c.at(o.now), c.at(o.expires)
	c.call(ctx, o, cancel, func(ctx context.Context) (err error) {
		switch o.kind {
		case claim:
			o.ok, err = c.subject.TryClaim(ctx, cl, now, expires)
		case renew:
			o.ok, err = c.subject.RenewClaim(ctx, cl, now, expires)
		case complete:
			o.ok, err = c.subject.Complete(ctx, cl, now)
		case fail:
			f := outbox.Failure{Reason: o.reason()}
			if o.retry > 0 {
				f.RetryAt = c.at(o.retry)
			}
			o.ok, err = c.subject.RecordFailure(ctx, cl, now, f)
		case release:
			o.ok, err = c.subject.ReleaseClaim(ctx, cl, now)
		}
		return err
	})
	if !o.unknown {
		c.count(fmt.Sprint(o.kind, " ", o.ok))
	}
}

func (c *client) readPending(ctx context.Context, lane outbox.Lane, now int64, cancel time.Duration) {
	o := &op{kind: readPending, lane: lane, now: now}
	c.call(ctx, o, cancel, func(ctx context.Context) error {
		dst := make([]outbox.Record, 128)
		n, err := c.subject.ReadPending(ctx, outbox.ReadRequest{Lane: lane, Now: c.at(now)}, dst)
		o.rows = map[int]seen{}
		for _, r := range dst[:n] {
			o.rows[c.byID[r.ID]] = seen{lane: r.Lane, attempts: r.Attempts, reason: r.LastError}
		}
		return err
	})
	if !o.unknown {
		c.count("read pending")
	}
}

func (c *client) readLane(ctx context.Context, lane outbox.Lane, cancel time.Duration) {
	c.connect(ctx)
	o := &op{kind: readLanes, lane: lane}
	c.call(ctx, o, cancel, func(ctx context.Context) error {
		dst := make([]outbox.LaneRow, 128)
		n, err := c.lanes.ReadLanes(ctx, []outbox.LaneRead{{Lane: lane}}, dst)
		o.rows = map[int]seen{}
		for _, r := range dst[:n] {
			o.rows[c.byID[r.Record.ID]] = seen{r.Lane, r.Pos, r.Record.Attempts, r.Record.LastError, r.Claimed}
		}
		return err
	})
	if o.unknown {
		return
	}
	c.count("read lanes")
	c.remember(o.rows)
}

// remember keeps what was read for later settlements.
func (c *client) remember(rows map[int]seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for row, s := range rows {
		c.last[row] = s
	}
}

// acquireLanes is one call of a relay's lease loop. A window that has ended is
// followed by one of a new owner.
func (c *client) acquireLanes(ctx context.Context, want int, ttl time.Duration, give []lease, unclean, end bool, cancel time.Duration) {
	c.connect(ctx)
	if c.owner == 0 {
		c.owner = c.newOwner()
	}
	o := &op{kind: acquire, owner: c.owner, want: want, ttl: ttl.Microseconds(), released: give, unclean: unclean, end: end}
	r := outbox.LaneRequest{Owner: c.ownerID(c.owner), Routes: []string{c.route.Name}, Want: want, TTL: ttl, End: end}
	for _, l := range give {
		r.Release = append(r.Release, outbox.LaneLease{Lane: l.lane, Route: c.route.Name, Owner: c.ownerID(l.owner), Epoch: l.epoch, Unclean: unclean})
	}
	c.call(ctx, o, cancel, func(ctx context.Context) error {
		g, err := c.lanes.AcquireLanes(ctx, r)
		o.grantNow, o.grants = g.Now.UnixMicro(), map[outbox.Lane]grant{}
		for _, l := range g.Leases {
			o.grants[l.Lane] = grant{l.Epoch, l.TriedTo, l.Unclean, l.ExpiresIn.Microseconds()}
		}
		return err
	})
	switch {
	case o.ownerOver:
		c.owner, c.held = 0, nil
		c.count("acquire: owner had ended")
		return
	case o.unknown:
		return
	}
	c.took(o)
	if end {
		c.owner, c.held = 0, nil
	}
}

// took makes the grant known to those who settle.
func (c *client) took(o *op) {
	before := c.held
	c.held = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	for lane, g := range o.grants {
		l := lease{lane, o.owner, g.epoch}
		c.held = append(c.held, l)
		known := false
		for _, b := range before {
			known = known || b == l
		}
		if known {
			c.tally["acquire: lane kept"]++
			continue
		}
		c.leases[lane] = append(c.leases[lane], l)
		c.tally["acquire: lane taken"]++
		if g.unclean {
			c.tally["acquire: lane taken from an expired owner"]++
		}
	}
	if o.end {
		c.tally["acquire: end"]++
	}
}

// settleRow reports the outcome of a row under a lease, as it was read last.
func (c *client) settleRow(ctx context.Context, l lease, rows []int, outcome outbox.SettleOutcome, attempt bool, retry int64, mark bool, cancel time.Duration) {
	c.connect(ctx)
	o := &op{kind: settle, owner: l.owner}
	r := outbox.SettleRequest{Owner: c.ownerOf(l)}
	c.mu.Lock()
	for _, row := range rows {
		last := c.last[row]
		o.settlements = append(o.settlements, settlement{
			lane: l.lane, row: row, epoch: l.epoch, pos: last.pos, outcome: outcome, attempts: last.attempts, attempt: attempt, retry: retry,
		})
		o.mark = max(o.mark, last.pos)
	}
	c.mu.Unlock()
	if mark {
		o.marks = []lease{l}
		r.TriedTo = []outbox.LaneMark{{Lane: l.lane, Epoch: l.epoch, Pos: o.mark}}
	}
	for i := range o.settlements {
		t := &o.settlements[i]
		t.reason = fmt.Sprintf("settlement %d.%d", c.settled.Add(1), t.row)
		st := outbox.Settlement{Lane: t.lane, Epoch: t.epoch, Pos: t.pos, ID: c.rows[t.row].id, Outcome: t.outcome, Attempts: t.attempts, Attempt: attempt, Reason: t.reason}
		if outcome == outbox.SettleAccepted {
			t.reason, st.Reason = "", ""
		}
		if retry > 0 {
			st.RetryAt = c.at(retry)
		}
		r.Settlements = append(r.Settlements, st)
	}
	c.call(ctx, o, cancel, func(ctx context.Context) error {
		results, err := c.lanes.SettleLanes(ctx, r)
		for i, res := range results {
			o.settlements[i].result = res
		}
		return err
	})
	if o.unknown {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range o.settlements {
		c.tally[fmt.Sprintf("settle %s: %s", outcomeNames[t.outcome], resultNames[t.result])]++
		if t.result == outbox.Settled && t.outcome == outbox.SettleFailed && attempt {
			c.last[t.row].attempts = t.attempts + 1
		}
	}
}

// ownerOf is the id that the lease was granted to.
func (c *client) ownerOf(l lease) outbox.ID {
	if l.owner == stranger {
		return outbox.NewID()
	}
	return c.ownerID(l.owner)
}

func (c *client) promoteLane(ctx context.Context, l lease, cancel time.Duration) {
	c.connect(ctx)
	o := &op{kind: promote, promoted: []lease{l}}
	in := []outbox.LaneLease{{Lane: l.lane, Route: c.route.Name, Owner: c.ownerOf(l), Epoch: l.epoch}}
	c.call(ctx, o, cancel, func(ctx context.Context) error {
		dst := make([]outbox.LaneRow, 64)
		n, _, err := c.lanes.PromoteLanes(ctx, in, dst)
		o.rows = map[int]seen{}
		for _, r := range dst[:n] {
			if r.Err != nil {
				c.tb.Errorf("promotion: %v", r.Err)
			}
			o.rows[c.byID[r.Record.ID]] = seen{r.Lane, r.Pos, r.Record.Attempts, r.Record.LastError, r.Claimed}
		}
		return err
	})
	if o.unknown {
		return
	}
	if len(o.rows) > 0 {
		c.count("promote: rows moved")
	}
	c.remember(o.rows)
}
