package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	r := &Relay{store: store, transports: make(map[string]transport.Transport, len(transports)), opt: opts.withDefaults()}
	for name, t := range transports {
		r.transports[name] = t
	}
	if err := r.opt.validate(); err != nil {
		return nil, err
	}
	if _, ok := store.(outbox.LaneStore); !ok && r.opt.RequireOrder {
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
// routes cannot be read yet is waited for. A second Run at the same time is
// refused; one after the other is fine.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: this relay is running already", outbox.ErrInvalidArgument)
	}
	defer r.running.Store(false)
	if err := r.checkRoutes(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if ls, ok := r.store.(outbox.LaneStore); ok {
		return newEngine(r, ls).run(ctx)
	}
	return newPlain(r).run(ctx)
}

// checkRoutes waits until the store answers which routes it has.
func (r *Relay) checkRoutes(ctx context.Context) error {
	router, ok := r.store.(outbox.Router)
	if !ok {
		return nil
	}
	state := storeState{hook: r.opt.Hooks.Store}
	for n := 0; ; n++ {
		routes, err := router.Routes(ctx)
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
			known = append(known, rt.Name)
		}
		for name := range r.transports {
			if !slices.Contains(known, name) {
				return fmt.Errorf("%w %q: the store has %s: create it with Migrate", outbox.ErrUnknownRoute, name, strings.Join(known, ", "))
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

// engine runs the loops of one Run around a core.
type engine struct {
	opt      Options
	store    outbox.LaneStore
	sessions outbox.LaneSessioner // nil: the store itself serves every loop
	parker   parker               // nil: nothing is ever parked
	state    storeState

	mu     sync.Mutex
	core   *core
	window *window
	clock  clock
	lostAt time.Time // when a store connection was last lost, local clock
	trail  trail     // how far the lanes had been read, and when
	shares []outbox.LaneShare

	kick struct{ read, sweep, settle, lease chan struct{} }
	all  atomic.Bool // the reader's next round covers every lane
	fast atomic.Bool // the settler does not linger: the relay is stopping
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

func newEngine(r *Relay, ls outbox.LaneStore) *engine {
	e := &engine{opt: r.opt, store: ls}
	e.state.hook = r.opt.Hooks.Store
	e.sessions, _ = ls.(outbox.LaneSessioner)
	e.parker, _ = ls.(parker)
	e.core = newCore(&e.opt, e)
	for name, t := range r.transports {
		rt := &route{name: name, transport: t, kick: make(chan struct{}, 1)}
		if p, ok := t.(transport.Pipeliner); ok {
			rt.pipelines = p.PipelinesKeys()
		}
		e.core.routes[name] = rt
	}
	for _, ch := range []*chan struct{}{&e.kick.read, &e.kick.sweep, &e.kick.settle, &e.kick.lease} {
		*ch = make(chan struct{}, 1)
	}
	wake := func() { e.all.Store(true); signal(e.kick.read) }
	r.waker.Store(&wake)
	return e
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// pause waits for d, a signal on kick, or the end of ctx.
func pause(ctx context.Context, d time.Duration, kick <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-kick:
	case <-t.C:
	}
}

// run starts the loops and takes them down in order: readers and senders
// first, then the settler, the leases last, so that a lane stays ours until its
// outcomes are written.
func (e *engine) run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	leaseCtx, stopLease := context.WithCancel(base)
	settleCtx, stopSettle := context.WithCancel(base)
	defer stopLease()
	defer stopSettle()
	e.window = newWindow(base)

	var taking, settling, leasing sync.WaitGroup
	loop := func(wg *sync.WaitGroup, f func(context.Context), ctx context.Context) {
		wg.Go(func() { f(ctx) })
	}
	loop(&leasing, e.leaseLoop, leaseCtx)
	loop(&settling, e.settleLoop, settleCtx)
	loop(&taking, e.readLoop, ctx)
	loop(&taking, e.sweepLoop, ctx)
	for _, rt := range e.core.routes {
		loop(&taking, func(ctx context.Context) { e.sendLoop(ctx, rt) }, ctx)
	}

	<-ctx.Done()
	e.mu.Lock()
	e.core.stopped = true
	e.mu.Unlock()
	e.fast.Store(true)
	taking.Wait()

	left := e.drain(base)
	stopSettle()
	settling.Wait()
	stopLease()
	leasing.Wait()
	e.endLease(base)
	e.window.end()
	if left != "" {
		return fmt.Errorf("relay stopped with %s: other relays send them again", left)
	}
	return nil
}

const (
	settleGrace = 5 * time.Second // for the outcomes of a stopping relay
	cancelGrace = time.Second     // for a transport to heed a cancelled Send
)

// drain waits for the sends, cancels them after the grace, and waits for their
// outcomes to be written. It tells what is left.
func (e *engine) drain(ctx context.Context) string {
	until := func(d time.Duration, done func() bool) bool {
		for end := time.Now().Add(d); ; {
			e.mu.Lock()
			ok := done()
			e.mu.Unlock()
			if ok || !time.Now().Before(end) {
				return ok
			}
			signal(e.kick.settle)
			pause(ctx, 2*time.Millisecond, nil)
		}
	}
	sent := func() bool { return e.core.sends() == 0 }
	if !until(e.opt.Grace, sent) {
		e.mu.Lock()
		w := e.window
		e.mu.Unlock()
		w.cancel()
		until(cancelGrace, sent)
	}
	if !until(settleGrace, func() bool { return e.core.pending() == 0 }) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return fmt.Sprintf("%d messages whose outcome is not written", e.core.pending())
	}
	return ""
}

func (e *engine) now() time.Time { return e.clock.now() }

// lost notes that a store connection broke. Reads start over, and nothing new
// is sent before a renewal that begins after this moment has succeeded.
func (e *engine) lost(loop string, err error) {
	e.mu.Lock()
	e.lostAt = time.Now()
	e.core.hold = true
	e.core.restart()
	e.mu.Unlock()
	e.state.set(loop, fmt.Errorf("%s: %w", loop, err))
	signal(e.kick.lease)
}

// session is one loop's own connection to the store.
type session struct {
	e       *engine
	purpose string
	store   outbox.LaneStore
	close   func() error
}

func (e *engine) session(purpose string) *session { return &session{e: e, purpose: purpose} }

// do runs f on the session's connection, opening it first, closing it after an
// error that is not the contract's own.
func (s *session) do(ctx context.Context, timeout time.Duration, f func(context.Context, outbox.LaneStore) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := s.open(ctx)
	if err == nil {
		err = f(ctx, s.store)
	}
	switch {
	case err == nil, errors.Is(err, outbox.ErrOwnerEnded):
		s.e.state.set(s.purpose, nil)
	case errors.Is(ctx.Err(), context.Canceled):
		s.end() // stopping: not an outage
	default:
		s.end()
		s.e.lost(s.purpose, err)
	}
	return err
}

func (s *session) open(ctx context.Context) error {
	if s.store != nil {
		return nil
	}
	if s.e.sessions == nil {
		s.store = s.e.store
		return nil
	}
	ls, err := s.e.sessions.LaneSession(ctx, s.purpose)
	if err != nil {
		return err
	}
	s.store, s.close = ls, ls.Close
	return nil
}

func (s *session) end() {
	if s.close != nil {
		_ = s.close() // it is given up; its error says nothing new
	}
	s.store, s.close = nil, nil
}

// retryWait is the pause after the n-th store error in a row.
func (e *engine) retryWait(ctx context.Context, n int) {
	pause(ctx, backoff(10*time.Millisecond, time.Second, n), nil)
}

// callTimeout bounds one store call that is not a renewal.
const callTimeout = 30 * time.Second
