package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// undelivered is how many committed messages are certainly not in the stream:
// never more than what the outbox holds, and never more than what was committed
// less what the stream holds without the copies that are known.
func (d *demo) undelivered(ctx context.Context) (int64, error) {
	// In this order: what is committed or delivered in between only makes the
	// result smaller.
	committed, err := d.shop.orders(ctx)
	if err != nil {
		return 0, err
	}
	copies := d.consumer.copies.Load()
	stored, err := d.broker.stored(ctx)
	if err != nil {
		return 0, err
	}
	pending, err := d.shop.pending(ctx)
	if err != nil {
		return 0, err
	}
	return max(0, min(pending, committed-(stored-copies))), nil
}

// sample keeps backlog up to date for the producers.
func (d *demo) sample(ctx context.Context) {
	for ctx.Err() == nil {
		if n, err := d.undelivered(ctx); err == nil {
			d.backlog.Store(n)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// crash kills and restarts one relay after another until enough of the kills
// have counted. A kill counts if at least killBacklog messages were undelivered
// just before and just after it.
func (d *demo) crash(ctx context.Context) error {
	c := d.fleet.(*children)
	r := rand.New(rand.NewPCG(d.opts.Seed, 1<<63))
	for n := 0; d.killed.Load() < kills; n++ {
		pause(ctx, 100*time.Millisecond+time.Duration(r.Int64N(int64(300*time.Millisecond))))
		before, err := d.awaitBacklog(ctx, n%2 == 1)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		number := n%d.opts.Relays + 1
		at := time.Now()
		c.kill(number)
		after, err := d.undelivered(ctx)
		if err != nil {
			return err
		}
		pause(ctx, time.Duration(r.Int64N(int64(200*time.Millisecond))))
		if err := c.restart(number); err != nil {
			return err
		}
		undelivered := min(before, after)
		err = d.shop.insert(ctx, "kills", 3, 1, func(int) []any { return []any{at.UnixNano(), number, undelivered} })
		if err != nil {
			return err
		}
		fmt.Fprintf(d.log, "%s demo: killed relay %d over %d undelivered messages\n", at.Format("15:04:05.000"), number, undelivered)
		if undelivered >= killBacklog {
			d.killed.Add(1)
		}
	}
	return nil
}

// awaitBacklog waits until killBacklog messages are undelivered; sending also
// until their number falls, so that a relay is killed while it sends. It gives
// up after a while: a kill that does not count leaves lanes without a relay
// until their lease has ended, and so makes the backlog for the next one.
func (d *demo) awaitBacklog(ctx context.Context, sending bool) (int64, error) {
	begin := time.Now()
	var last int64
	for ctx.Err() == nil {
		n, err := d.undelivered(ctx)
		if err != nil {
			return 0, err
		}
		waited := time.Since(begin)
		if n >= killBacklog && (!sending || n < last || waited > relayTTL) || waited > 2*relayTTL {
			return n, nil
		}
		last = n
		pause(ctx, 3*time.Millisecond)
	}
	return 0, context.Cause(ctx)
}
