package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// plain delivers from a store that offers the contract's six methods and no
// lanes: read, claim each row, send, settle each row. It keeps no order, gives
// nothing up (there is no place for dead letters), and several of them share
// the work by their claims. This file is the whole fallback.
type plain struct {
	opt        Options
	transports map[string]transport.Transport
	store      outbox.Store
	serial     *sync.Mutex // nil: the store allows concurrent calls
	state      storeState
	wake       chan struct{}
	offset     time.Duration // the database's clock less ours

	mu     sync.Mutex
	routes map[string]*plainRoute
}

type plainRoute struct {
	down     bool
	failures int
	retryAt  time.Time // local clock
	accepted uint64
}

func newPlain(r *Relay) *plain {
	p := &plain{
		opt: r.opt, transports: r.transports, store: r.store,
		wake: make(chan struct{}, 1), routes: map[string]*plainRoute{},
	}
	p.state.hook = r.opt.Hooks.Store
	if c, ok := r.store.(outbox.Concurrent); !ok || !c.ConcurrentUse() {
		p.serial = &sync.Mutex{}
	}
	for name := range r.transports {
		p.routes[name] = &plainRoute{}
	}
	wake := func() { signal(p.wake) }
	r.waker.Store(&wake)
	return p
}

func (p *plain) run(ctx context.Context) error {
	poll, failures := p.opt.PollMin, 0
	for ctx.Err() == nil {
		found, err := p.round(ctx)
		if ctx.Err() != nil {
			break
		}
		p.state.set("store", err)
		if err != nil {
			failures++
			pause(ctx, backoff(10*time.Millisecond, time.Second, failures), nil)
			continue
		}
		failures = 0
		if found {
			poll = p.opt.PollMin
		} else {
			poll = min(poll*2, p.opt.PollMax)
		}
		pause(ctx, poll, p.wake)
	}
	return nil
}

// call runs one store call under the rules of the store.
func (p *plain) call(f func() error) error {
	if p.serial != nil {
		p.serial.Lock()
		defer p.serial.Unlock()
	}
	return f()
}

func (p *plain) now() time.Time { return time.Now().Add(p.offset) }

// round sweeps every lane once and tells whether it sent anything.
func (p *plain) round(ctx context.Context) (found bool, err error) {
	if c, ok := p.store.(outbox.ServerClock); ok {
		var server time.Time
		if err := p.call(func() (err error) { server, err = c.ServerTime(ctx); return err }); err != nil {
			return false, err
		}
		p.offset = server.Sub(time.Now()) // behind by at most the call: never early
	}
	lanes, err := p.lanes(ctx)
	if err != nil {
		return false, err
	}
	for _, lane := range lanes {
		req := outbox.ReadRequest{Lane: lane, Now: p.now()}
		for ctx.Err() == nil {
			page := make([]outbox.Record, p.opt.Batch)
			var n int
			err := p.call(func() (err error) {
				n, err = p.store.ReadPending(ctx, req, page)
				if p.serial != nil {
					for i := range page[:n] {
						page[i].Message = page[i].Message.Clone() // borrowed until the next read
					}
				}
				return err
			})
			if n > 0 {
				req.After = page[n-1].ID
				sent, serr := p.deliver(ctx, page[:n])
				found = found || sent
				if serr != nil {
					return found, serr
				}
			}
			if bad, ok := err.(*outbox.RowError); ok {
				p.trouble(bad) // the good rows were sent; the bad ones wait for a person
			} else if err != nil {
				return found, err
			}
			if n < len(page) {
				break
			}
		}
	}
	return found, nil
}

func (p *plain) trouble(err error) {
	if hook := p.opt.Hooks.Trouble; hook != nil {
		hook(err)
	}
}

// lanes lists the contract's lanes: the unordered rows, and the ordered lanes
// that the store or the options name.
func (p *plain) lanes(ctx context.Context) ([]outbox.Lane, error) {
	lanes := []outbox.Lane{outbox.Unordered}
	router, ok := p.store.(outbox.Router)
	if !ok {
		for i := range p.opt.PlainLanes {
			lanes = append(lanes, outbox.Lane(i+1))
		}
		return lanes, nil
	}
	var routes []outbox.Route
	err := p.call(func() (err error) { routes, err = router.Routes(ctx); return err })
	for _, rt := range routes {
		if p.routes[rt.Name] != nil {
			for i := range rt.Ordered {
				lanes = append(lanes, rt.First+outbox.Lane(i))
			}
		}
	}
	return lanes, err
}

// claimed is one row under our claim on its way.
type claimed struct {
	p     *plain
	claim outbox.Claim
	rec   *outbox.Record
	since uint64
	until atomic.Int64 // trusted until, in nanoseconds after start
	start time.Time
	d     transport.Delivery
}

// Live implements transport.Lease.
func (c *claimed) Live() bool { return int64(time.Since(c.start)) < c.until.Load() }

// Reported implements transport.Sink.
func (c *claimed) Reported(d *transport.Delivery) {}

// deliver claims what may be sent of a page, sends it and writes the outcomes.
func (p *plain) deliver(ctx context.Context, page []outbox.Record) (sent bool, err error) {
	batches := map[string][]*claimed{}
	var all []*claimed
	for i := range page {
		rec := &page[i]
		if !p.open(rec.Transport, len(batches[rec.Transport])) {
			continue
		}
		c := &claimed{p: p, claim: outbox.Claim{ID: rec.ID, Token: outbox.NewToken()}, rec: rec, start: time.Now()}
		var ok bool
		if err = p.call(func() (err error) {
			now := p.now()
			ok, err = p.store.TryClaim(ctx, c.claim, now, now.Add(p.opt.TTL))
			return err
		}); err != nil {
			break // send what is claimed, then report
		}
		if !ok {
			continue
		}
		c.trust(c.start)
		p.mu.Lock()
		c.since = p.routes[rec.Transport].accepted
		p.mu.Unlock()
		batches[rec.Transport] = append(batches[rec.Transport], c)
		all = append(all, c)
	}
	if len(all) == 0 {
		return false, err
	}
	// Outcomes are written even when ctx ends: the broker may have accepted.
	sendCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { pause(sendCtx, p.opt.Grace, nil); cancel() })
	defer stop()
	done := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() { p.renew(sendCtx, all, done) })
	var sends sync.WaitGroup
	for route, batch := range batches {
		sends.Go(func() { p.send(sendCtx, route, batch) })
	}
	sends.Wait()
	close(done)
	renewing.Wait()
	settleCtx, cancelSettle := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancelSettle()
	for _, c := range all {
		if e := p.settle(settleCtx, c); e != nil && err == nil {
			err = e
		}
	}
	return true, err
}

func (c *claimed) trust(asked time.Time) {
	c.until.Store(int64(asked.Sub(c.start) + c.p.opt.TTL - max(c.p.opt.TTL/10, 100*time.Millisecond)))
}

// open tells whether the route may take one more message of this page.
func (p *plain) open(route string, taken int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	rt := p.routes[route]
	if rt == nil || !rt.down {
		return rt != nil
	}
	return taken == 0 && !time.Now().Before(rt.retryAt) // one tries
}

// renew keeps the claims alive while the sends go on.
func (p *plain) renew(ctx context.Context, all []*claimed, done <-chan struct{}) {
	for {
		pause(ctx, p.opt.TTL/3, done)
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		default:
		}
		for _, c := range all {
			if o, _ := c.d.Outcome(); o != transport.Unsent || !c.Live() {
				continue
			}
			asked := time.Now()
			var ok bool
			err := p.call(func() (err error) {
				now := p.now()
				ok, err = p.store.RenewClaim(ctx, c.claim, now, now.Add(p.opt.TTL))
				return err
			})
			if err == nil && ok && c.Live() {
				c.trust(asked)
			}
		}
	}
}

func (p *plain) send(ctx context.Context, route string, batch []*claimed) {
	ds := make([]*transport.Delivery, len(batch))
	for i, c := range batch {
		c.d.Record, c.d.Lease, c.d.Sink = c.rec, c, c
		ds[i] = &c.d
	}
	if err := safely(route, p.transports[route], ctx, ds); err != nil {
		p.trouble(err)
		for _, d := range ds {
			d.Report(transport.Unknown, err)
		}
	}
	for _, d := range ds {
		d.Report(transport.Unsent, nil)
	}
}

// settle writes one outcome.
func (p *plain) settle(ctx context.Context, c *claimed) error {
	o, cause := c.d.Outcome()
	if hook := p.opt.Hooks.Attempt; hook != nil {
		hook(Attempt{Record: c.rec, Outcome: o, Err: cause})
	}
	counts := p.note(c, o, cause)
	if o == transport.Accepted {
		return p.write(c, func() (bool, error) { return p.store.Complete(ctx, c.claim, p.now()) })
	}
	if !counts {
		rel, ok := p.store.(outbox.Releaser)
		if !ok {
			return nil // the claim runs out
		}
		return p.call(func() error {
			_, err := rel.ReleaseClaim(ctx, c.claim, p.now())
			return err
		})
	}
	reason := o.String()
	if cause != nil {
		reason = cause.Error()
	}
	attempts := c.rec.Attempts
	wait := backoff(p.opt.BackoffMin, p.opt.BackoffMax, attempts)
	if o == transport.Permanent || p.opt.MaxAttempts > 0 && attempts+1 >= p.opt.MaxAttempts {
		wait = p.opt.BackoffMax
		if hook := p.opt.Hooks.Exhausted; hook != nil {
			hook(c.rec.Transport, c.rec.ID, attempts+1)
		}
	}
	return p.write(c, func() (bool, error) {
		now := p.now()
		return p.store.RecordFailure(ctx, c.claim, now, outbox.Failure{Reason: outbox.CleanReason(reason), RetryAt: now.Add(wait)})
	})
}

// write writes an outcome and tells when its claim was gone.
func (p *plain) write(c *claimed, f func() (bool, error)) error {
	var held bool
	err := p.call(func() (err error) { held, err = f(); return err })
	if hook := p.opt.Hooks.ClaimLost; err == nil && !held && hook != nil {
		hook(c.rec.Transport, c.rec.ID)
	}
	return err
}

// note keeps the route's state and tells whether the outcome spends an attempt.
func (p *plain) note(c *claimed, o transport.Outcome, cause error) (counts bool) {
	p.mu.Lock()
	rt := p.routes[c.rec.Transport]
	was := rt.down
	switch o {
	case transport.Accepted:
		rt.accepted++
		rt.down, rt.failures = false, 0
	case transport.Refused, transport.Permanent, transport.Unroutable:
		counts = true
		rt.down, rt.failures = false, 0
	case transport.Unknown:
		counts = rt.accepted > c.since
	}
	if !counts && o != transport.Accepted && (!rt.down || !time.Now().Before(rt.retryAt)) {
		rt.down = true
		rt.retryAt = time.Now().Add(backoff(p.opt.BackoffMin, min(p.opt.BackoffMax, 5*time.Second), rt.failures))
		rt.failures++
	}
	down := rt.down
	p.mu.Unlock()
	if was != down {
		routeChanged(p.opt.Hooks.Route, c.rec.Transport, down, o, cause)
	}
	return counts
}
