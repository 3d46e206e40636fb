package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// sendLoop hands batches of one route to its transport.
func (e *engine) sendLoop(ctx context.Context, rt *route) {
	for ctx.Err() == nil {
		e.mu.Lock()
		now := e.now()
		batch := e.core.takeBatch(rt, now)
		wait := time.Hour
		if rt.down && rt.batches == 0 {
			wait = max(rt.retryAt.Sub(now), time.Millisecond)
		}
		var w *window
		if len(batch) > 0 {
			w = batch[0].lane.window
			w.sends.Add(1)
		}
		e.mu.Unlock()
		if len(batch) == 0 {
			pause(ctx, wait, rt.kick)
			if rt.down {
				signal(e.kick.read) // a row to try with may have to be read first
			}
			continue
		}
		go e.send(rt, w, batch)
	}
}

func (e *engine) send(rt *route, w *window, batch []*row) {
	defer w.sends.Done()
	ds := make([]transport.Delivery, len(batch))
	ptrs := make([]*transport.Delivery, len(batch))
	for i, r := range batch {
		ds[i].Record, ds[i].Lane, ds[i].Epoch, ds[i].Pos = &r.Record, r.Lane, r.lane.lease.Epoch, r.Pos
		ds[i].Lease, ds[i].Sink = r.lane, r
		ptrs[i] = &ds[i]
	}
	e.mu.Lock()
	for i, r := range batch {
		r.sent = &ds[i]
	}
	e.mu.Unlock()
	if err := safely(rt.name, rt.transport, w.ctx, ptrs); err != nil {
		e.trouble(err)
		for i := range ds {
			ds[i].Report(transport.Unknown, err) // it may have gone out
		}
	}
	for i := range ds {
		ds[i].Report(transport.Unsent, nil)
	}
	e.mu.Lock()
	rt.batches--
	e.mu.Unlock()
	signal(rt.kick)
	signal(e.kick.settle)
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
	signal(e.kick.settle)
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

// sends counts the Sends under way.
func (c *core) sends() (n int) {
	for _, rt := range c.routes {
		n += rt.batches
	}
	return n
}

func (e *engine) kickSenders() {
	for _, rt := range e.core.routes {
		if len(rt.ready) > 0 {
			signal(rt.kick)
		}
	}
}

func (e *engine) kickAll() {
	signal(e.kick.read)
	signal(e.kick.sweep)
	signal(e.kick.settle)
	for _, rt := range e.core.routes {
		signal(rt.kick)
	}
}

// settleRows is the most outcomes in one statement; from about twice as many
// PostgreSQL scans the table.
const settleRows = 1000

// settleLoop writes outcomes, many at once, until ctx ends.
func (e *engine) settleLoop(ctx context.Context) {
	s := e.session("settle")
	defer s.end()
	failures, most := 0, settleRows
	for ctx.Err() == nil {
		e.mu.Lock()
		waiting := len(e.core.outbox)
		e.mu.Unlock()
		if waiting == 0 {
			pause(ctx, time.Hour, e.kick.settle)
			continue
		}
		if waiting < most/4 && !e.fast.Load() {
			pause(ctx, linger, nil)
		}
		if err := e.settle(ctx, s, most); err != nil {
			// A row that the database refuses is found by halves; alone, it goes
			// behind the others.
			failures++
			most = max(most/2, 1)
			e.retryWait(ctx, failures)
			continue
		}
		failures, most = 0, min(most*2, settleRows)
	}
}

func (e *engine) settle(ctx context.Context, s *session, most int) error {
	e.mu.Lock()
	batch := e.core.takeOutcomes(most)
	req := outbox.SettleRequest{Owner: e.window.owner, Settlements: make([]outbox.Settlement, len(batch))}
	e.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	for i, o := range batch {
		req.Settlements[i] = o.Settlement
	}
	var results []outbox.SettleResult
	err := s.do(ctx, callTimeout, func(ctx context.Context, ls outbox.LaneStore) (err error) {
		results, err = ls.SettleLanes(ctx, req)
		if err == nil && len(results) != len(batch) {
			err = fmt.Errorf("store returned %d results for %d settlements", len(results), len(batch))
		}
		return err
	})
	if err != nil {
		e.mu.Lock()
		if len(batch) == 1 {
			e.core.outbox = append(e.core.outbox, batch[0])
		} else {
			e.core.outbox = append(batch, e.core.outbox...)
		}
		e.mu.Unlock()
		if len(batch) == 1 {
			e.trouble(fmt.Errorf("settle of message %s: %w", batch[0].ID, err))
		}
		return err
	}
	var lost []outbox.LaneLease
	e.mu.Lock()
	now := e.now()
	for i, o := range batch {
		if e.core.settled(o, results[i], now) {
			l := o.row.lane
			e.core.fenced[l.lease.Lane] = l.lease.Epoch
			e.core.drop(l)
			lost = append(lost, l.lease)
		}
	}
	drained := e.core.drained()
	due := e.core.nextDue()
	wants := !due.IsZero() && !due.After(now)
	for _, rt := range e.core.routes {
		wants = wants || e.core.room(rt)
	}
	e.kickSenders()
	e.mu.Unlock()
	for i, o := range batch {
		if hook := e.opt.Hooks.Dead; hook != nil && o.Outcome == outbox.SettleDead && results[i] == outbox.Settled {
			hook(o.ID, o.Reason)
		}
	}
	for _, ls := range lost {
		e.leaseLost(ls, "an outcome was fenced")
	}
	if drained || len(lost) > 0 {
		signal(e.kick.lease)
	}
	if wants {
		signal(e.kick.read)
	}
	return nil
}

// pending counts the messages handed out whose outcome is not written.
func (c *core) pending() int {
	n := 0
	for _, l := range c.lanes {
		n += l.pending
	}
	for _, o := range c.outbox {
		if o.row.lane.lost.Load() {
			n++
		}
	}
	return n
}
