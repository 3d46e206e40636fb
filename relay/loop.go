package relay

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/outbox"
)

// A looper is one of the relay's loops over the store, without the loop: next
// names the call to make now, or says how long to wait for a signal. One call
// at a time; its end is called before the next next.
type looper interface {
	next() (*call, wait)
	base() *loop
}

// loop is what the loopers have in common.
type loop struct {
	purpose string // also the name of its session
	kick    chan struct{}
	rows    []outbox.LaneRow // memory of the read under way
}

func newLoop(purpose string) loop { return loop{purpose: purpose, kick: make(chan struct{}, 1)} }

func (l *loop) base() *loop { return l }
func (l *loop) signal()     { signal(l.kick) }

// wait is a pause; a deaf one is not cut short by a signal.
type wait struct {
	d    time.Duration
	deaf bool
}

// call is one call to the store. do runs without the engine's lock; end takes
// the outcome, err included.
type call struct {
	timeout time.Duration
	do      func(ctx context.Context, ls outbox.LaneStore) error
	end     func(err error)
}

// callTimeout bounds one store call that is not a renewal.
const callTimeout = 30 * time.Second

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

// runLoop gives a looper its goroutine and its session.
func (e *engine) runLoop(ctx context.Context, l looper) {
	b := l.base()
	s := e.session(b.purpose)
	defer s.end()
	// The loops connect at the same time, not each when its turn comes.
	_ = s.do(ctx, &call{timeout: callTimeout, do: func(context.Context, outbox.LaneStore) error { return nil }})
	for failures := 0; ctx.Err() == nil; {
		c, w := l.next()
		if c == nil {
			kick := b.kick
			if w.deaf {
				kick = nil
			}
			pause(ctx, w.d, kick)
			continue
		}
		err := s.do(ctx, c)
		c.end(err)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		pause(ctx, storeBackoff(failures), nil)
	}
}

// storeBackoff is the pause after the n-th store error in a row.
func storeBackoff(n int) time.Duration { return backoff(10*time.Millisecond, time.Second, n) }

// session is one loop's own connection to the store.
type session struct {
	e       *engine
	purpose string
	opened  bool   // it was open before
	trust   *trust // under which it was opened
	store   outbox.LaneStore
	close   func() error
}

// trust is what connections are opened under. A renewal that gets no answer in
// time ends it: the other end may have vanished without a word, and the calls of
// the other loops would wait out their much longer limit for a line that will
// never answer.
type trust struct {
	ctx context.Context
	end context.CancelFunc
}

func newTrust() *trust {
	t := &trust{}
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

// distrust gives up every connection: calls under way are cancelled, and each
// loop opens its own anew.
func (e *engine) distrust() { e.trust.Swap(newTrust()).end() }

func (e *engine) session(purpose string) *session { return &session{e: e, purpose: purpose} }

// do makes the call on the session's connection, opening it first, closing it
// after an error that is not the contract's own.
func (s *session) do(ctx context.Context, c *call) error {
	if t := s.e.trust.Load(); s.trust != t {
		s.end()
		s.trust = t
	}
	call, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	defer context.AfterFunc(s.trust.ctx, cancel)()
	err := s.open(call)
	if err == nil {
		s.opened = true
		err = c.do(call, s.store)
	} else if !s.opened && errors.Is(err, outbox.ErrInvalidArgument) {
		s.e.unfit(err) // no outage: it will not do later either
		return err
	}
	if errors.Is(err, outbox.ErrSchema) && !s.e.begun.Load() {
		s.e.unfit(err) // nor do tables of another program become ours
		return err
	}
	switch {
	case ctx.Err() != nil:
		s.end() // stopping: not an outage
	case s.e.answered(s.purpose, err):
		s.end()
		if s.purpose == s.e.lease.purpose && errors.Is(call.Err(), context.DeadlineExceeded) {
			s.e.distrust()
		}
	}
	return err
}

// answered notes how a call went and tells whether its connection is lost. Of
// settles that the database refuses the settler is the judge, and of their end.
func (e *engine) answered(purpose string, err error) (lost bool) {
	switch {
	case purpose == e.settle.purpose && (errors.Is(err, outbox.ErrRefused) || err == nil && e.settle.refusals > mostRefused):
		return false
	case err == nil || errors.Is(err, outbox.ErrOwnerEnded):
		e.state.set(purpose, nil)
		return false
	}
	e.lost(purpose, err)
	return true
}

func (s *session) open(ctx context.Context) error {
	if s.store != nil {
		return nil
	}
	sessions, ok := s.e.store.(outbox.LaneSessioner)
	if !ok {
		s.store = s.e.store
		return nil
	}
	ls, err := sessions.LaneSession(ctx, s.purpose)
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
