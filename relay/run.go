package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// Relay delivers the messages of one store. Make it with [New].
type Relay struct {
	store      outbox.Store
	transports map[string]transport.Transport
	opt        Options

	running atomic.Bool
	waker   atomic.Pointer[func()]
}

// New returns a relay that sends the rows of each route of transports by its
// transport. The transports' clients stay the caller's. Over a store that is
// not an [outbox.LaneStore] the relay delivers without order.
//
// Errors are [outbox.ErrInvalidArgument]: no store, no transport, an option
// out of its limits, RequireOrder over a store that cannot keep order.
func New(store outbox.Store, transports map[string]transport.Transport, opts *Options) (*Relay, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: relay needs a store", outbox.ErrInvalidArgument)
	}
	if len(transports) == 0 {
		return nil, fmt.Errorf("%w: relay needs at least one transport, by route name", outbox.ErrInvalidArgument)
	}
	for name, t := range transports {
		if name == "" || t == nil {
			return nil, fmt.Errorf("%w: relay transport %q: name and transport are required", outbox.ErrInvalidArgument, name)
		}
	}
	r := &Relay{store: store, transports: maps.Clone(transports), opt: opts.withDefaults()}
	if err := r.opt.validate(); err != nil {
		return nil, err
	}
	if r.opt.RequireOrder && !r.Ordered() {
		return nil, fmt.Errorf("%w: RequireOrder is set and store %T has no lanes: use a store that implements outbox.LaneStore", outbox.ErrInvalidArgument, store)
	}
	return r, nil
}

// Ordered tells whether the store lets this relay keep order per key.
func (r *Relay) Ordered() bool {
	_, ok := r.store.(outbox.LaneStore)
	return ok
}

// Wake tells a running relay that something was committed. It never blocks, may
// be called from anywhere at any time, and is only a hint: without it the
// relay finds the rows by polling.
func (r *Relay) Wake() {
	if f := r.waker.Load(); f != nil {
		(*f)()
	}
}

// Run delivers until ctx ends, then stops cleanly: nothing new is read, sends
// get Options.Grace to finish, outcomes are written, lanes are given back. It
// survives outages of the store and of the brokers of any length.
//
// It returns nil after a clean stop; else an error that says what was left,
// which another relay will send again. A route that the store does not have is
// [outbox.ErrUnknownRoute], returned before anything is read; a store whose
// routes cannot be read yet is waited for. Tables that do not fit are
// [outbox.ErrSchema] at the start; once this Run has worked with them they are
// waited for, as while somebody restores them. A pool that does not lend the
// connections that the relay keeps is [outbox.ErrInvalidArgument]. A second Run
// at the same time is refused; one after the other is fine.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: this relay is running already", outbox.ErrInvalidArgument)
	}
	defer r.running.Store(false)
	if err := r.checkRoutes(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	ls, ok := r.store.(outbox.LaneStore)
	if !ok {
		return newPlain(r).run(ctx)
	}
	e := newEngine(r.opt, ls, r.transports)
	wake := e.wake
	r.waker.Store(&wake)
	return e.run(ctx)
}

// checkRoutes waits until the store answers which routes it has.
func (r *Relay) checkRoutes(ctx context.Context) error {
	router, ok := r.store.(outbox.Router)
	if !ok {
		return nil
	}
	state := storeState{hook: r.opt.Hooks.Store}
	for n := 0; ; n++ {
		// A connection whose other end has vanished never answers.
		call, cancel := context.WithTimeout(ctx, callTimeout)
		routes, err := router.Routes(call)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, outbox.ErrSchema) {
			return err
		}
		state.set("routes", err)
		if err != nil {
			pause(ctx, backoff(r.opt.BackoffMin, min(r.opt.BackoffMax, 5*time.Second), n), nil)
			continue
		}
		var known []string
		for _, rt := range routes {
			known = append(known, strconv.Quote(rt.Name))
		}
		for name := range r.transports {
			if !slices.Contains(known, strconv.Quote(name)) {
				return fmt.Errorf("%w %q: the store has %s: correct the name, or create it with Options.Routes of the store and Migrate", outbox.ErrUnknownRoute, name, strings.Join(known, ", "))
			}
		}
		return nil
	}
}

// storeState calls the store hook once per change: the store is lost while any
// of the loops cannot reach it.
type storeState struct {
	mu   sync.Mutex
	down map[string]bool // loops that failed last
	hook func(error)
}

func (s *storeState) set(loop string, err error) {
	s.mu.Lock()
	was := len(s.down) > 0
	if err == nil {
		delete(s.down, loop)
	} else {
		if s.down == nil {
			s.down = map[string]bool{}
		}
		s.down[loop] = true
	}
	changed := was != (len(s.down) > 0)
	s.mu.Unlock()
	if changed && s.hook != nil {
		s.hook(err)
	}
}

// engine is one Run: a core, its lock, and the loops that call the store. A
// loop is a [looper]: it says which call it wants now, or how long to wait, and
// takes the answer. Who runs the calls, goroutines or a simulation, makes no
// difference to it.
type engine struct {
	opt    Options
	store  outbox.LaneStore
	parker parker // nil: nothing is ever parked
	state  storeState
	trust  atomic.Pointer[trust] // what the loops' connections are opened under
	unfit  func(error)           // ends the run: the store cannot serve a relay
	begun  atomic.Bool           // lanes were read, or renewed for a TTL: the tables fit

	mu     sync.Mutex
	core   *core
	window *window
	clock  clock
	losses int   // store connections lost so far
	renews int   // renewals that succeeded so far
	trail  trail // how far the lanes had been read, and when
	shares []outbox.LaneShare
	all    bool // the reader's next round covers every lane
	deep   bool // the reader's last round left rows behind
	fast   bool // the settler does not linger: the relay is stopping

	lease  *leaser
	read   *reader
	sweep  *sweeper
	settle *settler
}

type parker interface {
	outbox.Parker
	outbox.LaneParker
}

// clock carries the database's time on the local monotonic clock. It runs
// behind by at most the time of one call, never ahead, so that nothing is sent
// early.
type clock struct{ base, at time.Time }

func (c clock) now() time.Time {
	if c.base.IsZero() {
		return time.Now()
	}
	return c.base.Add(time.Since(c.at))
}

func newEngine(opt Options, ls outbox.LaneStore, transports map[string]transport.Transport) *engine {
	e := &engine{opt: opt, store: ls, all: true}
	e.state.hook = opt.Hooks.Store
	e.trust.Store(newTrust())
	e.parker, _ = ls.(parker)
	e.core = newCore(&e.opt, e)
	for _, name := range slices.Sorted(maps.Keys(transports)) {
		t := transports[name]
		rt := &route{name: name, transport: t, kick: make(chan struct{}, 1), size: outbox.DefaultSize}
		if p, ok := t.(transport.Pipeliner); ok {
			rt.pipelines = p.PipelinesKeys()
		}
		e.core.routes = append(e.core.routes, rt)
	}
	e.lease = &leaser{loop: newLoop("lease"), e: e}
	e.window = newWindow(e.lease.signal)
	e.read = &reader{loop: newLoop("read"), e: e, poll: opt.PollMin}
	e.sweep = newSweeper(e)
	e.settle = newSettler(e)
	return e
}

func (e *engine) wake() {
	e.mu.Lock()
	e.all = true
	e.mu.Unlock()
	e.read.signal()
}

func (e *engine) now() time.Time { return e.clock.now() }

// run starts the loops and takes them down in order: readers and senders
// first, then the settler, the leases last, so that a lane stays ours until its
// outcomes are written.
func (e *engine) run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var unfit atomic.Pointer[error]
	e.unfit = func(err error) {
		unfit.CompareAndSwap(nil, &err)
		cancel()
	}
	leaseCtx, stopLease := context.WithCancel(base)
	settleCtx, stopSettle := context.WithCancel(base)
	defer stopLease()
	defer stopSettle()
	var taking, settling, leasing sync.WaitGroup
	leasing.Go(func() { e.runLoop(leaseCtx, e.lease) })
	settling.Go(func() { e.runLoop(settleCtx, e.settle) })
	taking.Go(func() { e.runLoop(ctx, e.read) })
	taking.Go(func() { e.runLoop(ctx, e.sweep) })
	for _, rt := range e.core.routes {
		taking.Go(func() { e.sendLoop(ctx, rt) })
	}

	<-ctx.Done()
	e.stop()
	taking.Wait()
	left := e.drain(base)
	stopSettle()
	settling.Wait()
	stopLease()
	leasing.Wait()
	e.endLease(base)
	e.window.end()
	if err := unfit.Load(); err != nil {
		return fmt.Errorf("start the relay: %w", *err)
	}
	if left > 0 {
		return fmt.Errorf("relay stopped with %d messages whose outcome is not written: they are sent again", left)
	}
	return nil
}

// stop ends reading and sending.
func (e *engine) stop() {
	e.mu.Lock()
	e.core.stopped, e.fast = true, true
	e.core.unsolo()
	e.mu.Unlock()
	e.settle.signal()
}

const (
	settleGrace = 5 * time.Second // for the outcomes of a stopping relay
	cancelGrace = time.Second     // for a transport to heed a cancelled Send
)

// drain waits for the sends, cancels them after the grace, and waits for their
// outcomes to be written. It tells how many are left.
func (e *engine) drain(ctx context.Context) int {
	until := func(d time.Duration, count func() int) int {
		for end := time.Now().Add(d); ; {
			e.mu.Lock()
			n := count()
			e.mu.Unlock()
			if n == 0 || !time.Now().Before(end) {
				return n
			}
			e.settle.signal()
			pause(ctx, 2*time.Millisecond, nil)
		}
	}
	if until(e.opt.Grace, e.core.sends) > 0 {
		e.mu.Lock()
		w := e.window
		e.mu.Unlock()
		w.cancel()
		until(cancelGrace, e.core.sends)
	}
	return until(settleGrace, e.core.pending)
}

// endLease is the clean stop: every lane is given back at once.
func (e *engine) endLease(ctx context.Context) {
	s := e.session(e.lease.purpose)
	defer s.end()
	for c := e.lease.lastCall(); c != nil; c = e.lease.lastCall() {
		c.end(s.do(ctx, c)) // if it fails the lanes are free when the lease runs out
	}
}

// lost notes that a store connection broke. Reads start over, and nothing new
// is sent before a renewal that begins after this moment has succeeded.
func (e *engine) lost(loop string, err error) {
	e.mu.Lock()
	e.losses++
	e.core.hold = true
	e.core.restart()
	e.mu.Unlock()
	e.state.set(loop, fmt.Errorf("%s: %w", loop, err))
	e.lease.signal()
}

func (e *engine) trouble(err error) {
	if hook := e.opt.Hooks.Trouble; hook != nil {
		hook(err)
	}
}

// kickSenders wakes the senders that have something to send. Under the lock.
func (e *engine) kickSenders() {
	suspects := e.core.solo == nil && len(e.core.suspects) > 0
	for _, rt := range e.core.routes {
		if suspects || len(rt.ready) > 0 {
			signal(rt.kick)
		}
	}
}
