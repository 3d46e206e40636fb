package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/postrider/postrider/outbox"
)

// FaultPoint is where an injected error strikes.
type FaultPoint uint8

const (
	// BeforeCommit: nothing has happened; the store was not called.
	BeforeCommit FaultPoint = iota
	// AfterCommit: it has happened, and the caller sees an error.
	AfterCommit
)

// FaultError is an injected error. To its caller it is a lost connection: only
// a test may look at what really happened.
type FaultError struct {
	Method string
	Point  FaultPoint
	Err    error // FaultOptions.Err
}

// Error names the method and the point.
func (e *FaultError) Error() string {
	when := "before"
	if e.Point == AfterCommit {
		when = "after"
	}
	return fmt.Sprintf("injected %s the commit of %s: %v", when, e.Method, e.Err)
}

// Unwrap returns FaultOptions.Err.
func (e *FaultError) Unwrap() error { return e.Err }

// FaultOptions configures a [Fault]. The zero value, and nil, inject nothing
// until [Fault.Fail] is called.
type FaultOptions struct {
	// Seed of the random faults. Defaults to 1.
	Seed uint64
	// Before and After are the probabilities, 0 to 1, that a call fails at that
	// point. Default to 0.
	Before, After float64
	// Methods are those that fail at random. Defaults to every method that
	// returns an error.
	Methods []string
	// Err is what every [FaultError] wraps. Defaults to "connection lost".
	Err error
}

// Fault injects errors into a store. Hand [Fault.Store] to what is under test.
// It is safe for concurrent use.
type Fault struct {
	opts FaultOptions

	mu      sync.Mutex
	rand    *rand.Rand
	planned []plan
	calls   map[string]int
	struck  map[string]int
	store   outbox.Store
}

type plan struct {
	method     string
	point      FaultPoint
	skip, left int
}

// NewFault wraps store. The wrapper has exactly the capabilities that the store
// has, in three groups: lanes (LaneStore, with or without LaneSessioner), the
// operator's (DeadLetters, Parker, LaneParker, Confirmer, Inspector) and the
// small ones (Releaser, ServerClock, Router, AgeStore); Concurrent is answered
// as the store does. A store with a part of a group is an error, as the wrapper
// would have to pretend or to hide the rest.
func NewFault(store outbox.Store, opts *FaultOptions) (*Fault, error) {
	f := &Fault{calls: map[string]int{}, struck: map[string]int{}}
	if opts != nil {
		f.opts = *opts
	}
	if f.opts.Seed == 0 {
		f.opts.Seed = 1
	}
	if f.opts.Err == nil {
		f.opts.Err = fmt.Errorf("connection lost")
	}
	for name, p := range map[string]float64{"Before": f.opts.Before, "After": f.opts.After} {
		if p < 0 || p > 1 {
			return nil, invalid("FaultOptions.%s is %v: a probability lies between 0 and 1", name, p)
		}
	}
	f.rand = rand.New(rand.NewPCG(f.opts.Seed, f.opts.Seed))
	var err error
	f.store, err = f.wrap(store)
	return f, err
}

// Store returns the wrapped store.
func (f *Fault) Store() outbox.Store { return f.store }

// Fail plans errors: after skip more calls of the method, the next times calls
// fail at the point. Plans for one method are used up in the order in which
// they were made.
func (f *Fault) Fail(method string, point FaultPoint, skip, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.planned = append(f.planned, plan{method, point, skip, times})
}

// Heal ends all faults, planned and random.
func (f *Fault) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.planned, f.opts.Before, f.opts.After = nil, 0, 0
}

// Calls tells how often the method was called.
func (f *Fault) Calls(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// Injected tells how many calls of the method failed by injection; "" means of
// all methods.
func (f *Fault) Injected(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if method != "" {
		return f.struck[method]
	}
	n := 0
	for _, c := range f.struck {
		n += c
	}
	return n
}

// decide returns the fault of one call, nil for none.
func (f *Fault) decide(method string) *FaultError {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	strike := func(p FaultPoint) *FaultError {
		f.struck[method]++
		return &FaultError{Method: method, Point: p, Err: f.opts.Err}
	}
	for i := range f.planned {
		p := &f.planned[i]
		if p.method != method || p.skip == 0 && p.left == 0 {
			continue
		}
		if p.skip > 0 {
			p.skip--
			break
		}
		p.left--
		return strike(p.point)
	}
	if len(f.opts.Methods) > 0 && !slices.Contains(f.opts.Methods, method) {
		return nil
	}
	switch x := f.rand.Float64(); {
	case x < f.opts.Before:
		return strike(BeforeCommit)
	case x < f.opts.Before+f.opts.After:
		return strike(AfterCommit)
	}
	return nil
}

// call runs fn under the fault that is due. An error of the store itself is
// passed on: it says more than an injected one.
func (f *Fault) call(method string, fn func() error) error {
	fault := f.decide(method)
	if fault != nil && fault.Point == BeforeCommit {
		return fault
	}
	if err := fn(); err != nil || fault == nil {
		return err
	}
	return fault
}

// call2 is call for functions with a result, which an injected error hides.
func call2[A any](f *Fault, method string, fn func() (A, error)) (a A, err error) {
	err = f.call(method, func() (err error) {
		a, err = fn()
		return err
	})
	if _, injected := err.(*FaultError); injected {
		var none A
		return none, err
	}
	return a, err
}

// wrap builds the type that has the store's capabilities.
func (f *Fault) wrap(s outbox.Store) (outbox.Store, error) {
	group := func(name string, has ...bool) (bool, error) {
		n := 0
		for _, h := range has {
			if h {
				n++
			}
		}
		if n != 0 && n != len(has) {
			return false, fmt.Errorf("storetest: NewFault: %T has a part of the %s capabilities only: embed it in a type that has all or none", s, name)
		}
		return n > 0, nil
	}
	dead, hasDead := s.(outbox.DeadLetters)
	parker, hasParker := s.(outbox.Parker)
	mover, hasMover := s.(outbox.LaneParker)
	conf, hasConf := s.(outbox.Confirmer)
	insp, hasInsp := s.(outbox.Inspector)
	rel, hasRel := s.(outbox.Releaser)
	clock, hasClock := s.(outbox.ServerClock)
	router, hasRouter := s.(outbox.Router)
	age, hasAge := s.(outbox.AgeStore)
	lanes, hasLanes := s.(outbox.LaneStore)
	sess, hasSess := s.(outbox.LaneSessioner)
	operator, err := group("operator's", hasDead, hasParker, hasMover, hasConf, hasInsp)
	if err != nil {
		return nil, err
	}
	small, err := group("small", hasRel, hasClock, hasRouter, hasAge)
	if err != nil {
		return nil, err
	}
	if hasSess && !hasLanes {
		return nil, fmt.Errorf("storetest: NewFault: %T has LaneSessioner without LaneStore", s)
	}
	b := faultStore{f, s}
	l := faultLanes{f, lanes}
	n := faultSessions{f, sess}
	o := faultOperator{f, dead, parker, mover, conf, insp}
	m := faultSmall{f, rel, clock, router, age}
	switch {
	case hasSess && operator && small:
		return struct {
			faultStore
			faultLanes
			faultSessions
			faultOperator
			faultSmall
		}{b, l, n, o, m}, nil
	case hasSess && operator:
		return struct {
			faultStore
			faultLanes
			faultSessions
			faultOperator
		}{b, l, n, o}, nil
	case hasSess && small:
		return struct {
			faultStore
			faultLanes
			faultSessions
			faultSmall
		}{b, l, n, m}, nil
	case hasSess:
		return struct {
			faultStore
			faultLanes
			faultSessions
		}{b, l, n}, nil
	case hasLanes && operator && small:
		return struct {
			faultStore
			faultLanes
			faultOperator
			faultSmall
		}{b, l, o, m}, nil
	case hasLanes && operator:
		return struct {
			faultStore
			faultLanes
			faultOperator
		}{b, l, o}, nil
	case hasLanes && small:
		return struct {
			faultStore
			faultLanes
			faultSmall
		}{b, l, m}, nil
	case hasLanes:
		return struct {
			faultStore
			faultLanes
		}{b, l}, nil
	case operator && small:
		return struct {
			faultStore
			faultOperator
			faultSmall
		}{b, o, m}, nil
	case operator:
		return struct {
			faultStore
			faultOperator
		}{b, o}, nil
	case small:
		return struct {
			faultStore
			faultSmall
		}{b, m}, nil
	}
	return b, nil
}
