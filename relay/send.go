package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/transport"
)

// sendLoop hands batches of one route to its transport, several at once.
func (e *engine) sendLoop(ctx context.Context, rt *route) {
	for ctx.Err() == nil {
		b, w := e.nextBatch(rt)
		if b == nil {
			pause(ctx, w, rt.kick)
			continue
		}
		go b.send()
	}
}

// batch is one Send on its way.
type batch struct {
	e      *engine
	rt     *route
	window *window
	ds     []*transport.Delivery
}

// nextBatch takes what may be sent now, or tells how long to wait for a signal.
func (e *engine) nextBatch(rt *route) (*batch, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	rows := e.core.takeBatch(rt, now)
	if e.core.urgent() || len(rows) == 0 && len(e.core.outbox) > 0 {
		e.settle.signal() // for tried_to, or for rows that cannot be decoded
	}
	if len(rows) == 0 {
		if !rt.down || rt.batches > 0 {
			return nil, time.Hour
		}
		if now.Before(rt.retryAt) {
			return nil, rt.retryAt.Sub(now)
		}
		e.read.signal() // a row to try with has to be read first
		return nil, e.opt.PollMax
	}
	b := &batch{e: e, rt: rt, window: rows[0].lane.window, ds: make([]*transport.Delivery, len(rows))}
	b.window.sends++
	ds := make([]transport.Delivery, len(rows))
	for i, r := range rows {
		d := &ds[i]
		d.Record, d.Lane, d.Epoch, d.Pos = &r.Record, r.Lane, r.lane.lease.Epoch, r.Pos
		d.Lease, d.Sink = r.lane, r
		r.sent, b.ds[i] = d, d
	}
	return b, 0
}

// send runs one Send to its end. What the transport did not report was not
// sent; if it panicked, it may have been.
func (b *batch) send() {
	if err := safely(b.rt.name, b.rt.transport, b.window.ctx, b.ds); err != nil {
		b.e.trouble(err)
		for _, d := range b.ds {
			d.Report(transport.Unknown, err)
		}
	}
	b.done()
}

func (b *batch) done() {
	for _, d := range b.ds {
		d.Report(transport.Unsent, nil)
	}
	e := b.e
	e.mu.Lock()
	b.rt.batches--
	b.window.sends--
	over := b.window.sends == 0 && b.window.ended.Load()
	e.mu.Unlock()
	signal(b.rt.kick)
	if over {
		e.lease.signal()
	}
}

// safely turns a transport's panic into an error.
func safely(route string, t transport.Transport, ctx context.Context, ds []*transport.Delivery) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("transport of route %q panicked: %v", route, v)
		}
	}()
	t.Send(ctx, ds)
	return nil
}

// reported implements reporter: one outcome, from whatever goroutine.
func (e *engine) reported(r *row, d *transport.Delivery) {
	o, err := d.Outcome()
	if hook := e.opt.Hooks.Attempt; hook != nil {
		hook(Attempt{Record: d.Record, Lane: d.Lane, Pos: d.Pos, Outcome: o, Err: err})
	}
	rt := r.lane.route
	e.mu.Lock()
	if r.sent != d {
		e.mu.Unlock()
		return
	}
	was := rt.down
	e.core.report(r, o, err, e.now())
	down, ready := rt.down, len(rt.ready) > 0
	e.mu.Unlock()
	if was != down {
		routeChanged(e.opt.Hooks.Route, rt.name, down, o, err)
	}
	e.settle.signal()
	if ready {
		signal(rt.kick)
	}
}

func routeChanged(hook func(string, error), name string, down bool, o transport.Outcome, err error) {
	switch {
	case hook == nil:
	case !down:
		hook(name, nil)
	case err == nil:
		hook(name, fmt.Errorf("message was %s", o))
	default:
		hook(name, err)
	}
}
