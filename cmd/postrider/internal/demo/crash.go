package demo

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// undelivered is how many committed messages are certainly not in the stream:
// never more than what the outbox holds, and never more than what was committed
// less what the stream holds without the copies that are known. stored is what
// the stream held, copies included.
func (d *demo) undelivered(ctx context.Context) (n, stored int64, err error) {
	// In this order: what is committed or delivered in between only makes the
	// result smaller.
	committed, err := d.shop.orders(ctx)
	if err != nil {
		return 0, 0, err
	}
	copies := d.consumer.copies.Load()
	if stored, err = d.broker.stored(ctx); err != nil {
		return 0, 0, err
	}
	pending, err := d.shop.pending(ctx)
	if err != nil {
		return 0, 0, err
	}
	return max(0, min(pending, committed-(stored-copies))), stored, nil
}

// sample keeps backlog up to date for the producers.
func (d *demo) sample(ctx context.Context) {
	for ctx.Err() == nil {
		if n, _, err := d.undelivered(ctx); err == nil {
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
		number := n%d.opts.Relays + 1
		pause(ctx, time.Duration(r.Int64N(int64(200*time.Millisecond))))
		// Relays that keep up leave nothing to die over: then all of them die,
		// production goes on, and the one that comes back first meets a backlog.
		before, err := d.hunt(ctx, r, relayTTL)
		if err != nil {
			return err
		}
		alone := before < killBacklog
		if alone {
			for i := range d.opts.Relays {
				if err := d.kill(ctx, c, i+1, before); err != nil {
					return err
				}
			}
			if err := d.awaitBacklog(ctx); err != nil {
				return err
			}
			if err := c.restart(number); err != nil {
				return err
			}
			if before, err = d.hunt(ctx, r, 2*relayTTL); err != nil {
				return err
			}
		}
		if err := d.kill(ctx, c, number, before); err != nil {
			return err
		}
		pause(ctx, time.Duration(r.Int64N(int64(200*time.Millisecond))))
		for i := range d.opts.Relays {
			if alone || i+1 == number {
				if err := c.restart(i + 1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// kill kills a relay over so many undelivered messages and writes it down.
func (d *demo) kill(ctx context.Context, c *children, number int, before int64) error {
	at := time.Now()
	c.kill(number)
	after, _, err := d.undelivered(ctx)
	if err != nil {
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
	return nil
}

// hunt waits for the moment in which killBacklog messages are undelivered and
// some are being sent, and returns how many are undelivered: fewer if the
// moment does not come in time. A backlog may be sent within milliseconds, so
// it asks nothing but the broker while it waits for the first of it.
func (d *demo) hunt(ctx context.Context, r *rand.Rand, most time.Duration) (int64, error) {
	begin := time.Now()
	for {
		n, stored, err := d.undelivered(ctx)
		if err != nil {
			return 0, err
		}
		if n < killBacklog {
			if time.Since(begin) > most {
				return n, nil
			}
			pause(ctx, 5*time.Millisecond)
		} else {
			// Some die over their first message, others in the middle.
			enough := int64(math.Pow(float64(1+(n-killBacklog)/2), r.Float64()))
			for looked := time.Now(); time.Since(looked) < 50*time.Millisecond; {
				now, err := d.broker.stored(ctx)
				if err != nil {
					return 0, err
				}
				// What was committed meanwhile only adds to it.
				if left := n - (now - stored); now-stored >= enough && left >= killBacklog {
					return left, nil
				}
			}
			if time.Since(begin) > 2*most {
				return n, nil
			}
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// awaitBacklog waits until production has left enough for a kill, while no
// relay runs.
func (d *demo) awaitBacklog(ctx context.Context) error {
	for begin := time.Now(); time.Since(begin) < 10*time.Second; pause(ctx, 20*time.Millisecond) {
		n, _, err := d.undelivered(ctx)
		if err != nil {
			return err
		}
		if n >= 3*killBacklog {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
