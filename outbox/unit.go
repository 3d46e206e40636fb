package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Beginner begins and ends transactions of the native type Tx, for a
// [UnitOfWork]. Its methods are called concurrently, for different
// transactions.
type Beginner[Tx any] interface {
	Begin(ctx context.Context) (Tx, error)
	Commit(ctx context.Context, tx Tx) error
	// Rollback ends tx without a trace; where tx has ended by itself, as many
	// do with the context they were begun with, it returns nil. It is also
	// called after a failed Commit, to free what tx still holds; its error does
	// not count then. ctx is never cancelled with the caller's, and ends after
	// 5 s.
	Rollback(ctx context.Context, tx Tx) error
}

// UnitOptions configure a [UnitOfWork].
type UnitOptions struct {
	// Committed is called after every successful commit that wrote messages,
	// on the goroutine of the caller, for example to wake a relay. It is called
	// concurrently, must return at once and must not panic. Defaults to nil:
	// nothing is called.
	Committed func()
}

// rollbackTimeout bounds a rollback, which runs on after the caller's context
// has been cancelled.
const rollbackTimeout = 5 * time.Second

// UnitOfWork runs business writes and publishes in one transaction that
// travels in the context. Messages are buffered and written as the last
// statement before COMMIT, when the unit holds every lock it will ever take:
// the messages of a key then get their positions in the order of the commits.
//
// Make one with [NewUnitOfWork]. It is safe for concurrent use. Several in one
// context do not mix: each knows only its own transactions.
type UnitOfWork[Tx any] struct {
	outbox    *Outbox[Tx]
	beginner  Beginner[Tx]
	committed func()
}

// NewUnitOfWork returns a unit of work that begins transactions with b and
// publishes through o. opts may be nil. Errors are [ErrInvalidArgument].
func NewUnitOfWork[Tx any](o *Outbox[Tx], b Beginner[Tx], opts *UnitOptions) (*UnitOfWork[Tx], error) {
	switch {
	case o == nil || o.enlister == nil:
		return nil, invalid("the Outbox was not made: use outbox.New")
	case isNil(b):
		return nil, invalid("the Beginner is nil: pass one for your database library")
	}
	u := &UnitOfWork[Tx]{outbox: o, beginner: b}
	if opts != nil {
		u.committed = opts.Committed
	}
	return u, nil
}

// unitKey is the context key of one UnitOfWork's units.
type unitKey struct{ owner any }

// unit is one transaction on its way.
type unit[Tx any] struct {
	tx Tx

	mu     sync.Mutex
	recs   []Record
	seen   map[ID]struct{} // ids in recs that callers brought
	nested int             // joined Do calls that have not returned
	doomed error           // why the unit must roll back
	ended  bool            // nothing can be added any more
}

// Do runs fn in a transaction. ctx as given to fn carries the unit: a Publish
// of this UnitOfWork with it is buffered, and a Do with it joins. When fn
// returns nil the buffered messages are written and the transaction is
// committed. When fn fails or panics, or ctx is done before the commit, it is
// rolled back; the panic goes on. The rollback does not end with ctx, but after
// 5 s. fn must neither commit nor roll back tx.
//
// A nested Do runs fn in the unit it joins, without a transaction or a
// savepoint of its own. If it fails or panics the whole unit rolls back,
// whatever the outer fn makes of it, and the outer Do returns that error.
//
// The unit ends when the outer fn returns. Whoever uses its context later, a
// goroutine that was left behind, gets [ErrTxDone] and writes nothing; a
// nested Do that has not returned by then rolls the unit back. Give goroutines
// that outlive the unit the context from outside.
//
// Errors of fn come back as they are, joined with that of the rollback if it
// fails too; every other is wrapped. After an error nothing was committed, with
// one exception: when the commit itself fails, it may have committed, and the
// messages may be sent. The text says so.
func (u *UnitOfWork[Tx]) Do(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	if fn == nil {
		return invalid("Do: fn is nil")
	}
	if s := u.current(ctx); s != nil {
		return s.join(ctx, fn)
	}
	return u.run(ctx, &unit[Tx]{}, fn)
}

// Publish encodes and checks the publications, all or none, and returns their
// ids. Within a [UnitOfWork.Do] of the same UnitOfWork it copies and buffers
// them for the unit, and they are written with its commit; the ids mean
// nothing if it rolls back. An error leaves the unit as it was: it can still
// commit, without these publications.
//
// With no unit in ctx it writes them in a transaction of its own, which holds
// the outbox rows only. It cannot include business writes made elsewhere:
// those commit or fail on their own, before or after. Use Do where both must
// happen or neither.
//
// Errors are those of [Outbox.PublishAll]; [ErrDuplicateID] for an id that the
// unit holds already; [ErrTxDone] when the unit of ctx has ended; and with a
// transaction of its own those of Do. No publications are no error and begin
// nothing.
func (u *UnitOfWork[Tx]) Publish(ctx context.Context, ps ...Publication) ([]ID, error) {
	s := u.current(ctx)
	if s != nil {
		if err := s.open(); err != nil {
			return nil, err
		}
	}
	recs, err := u.outbox.records(ctx, ps)
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	if s == nil {
		s = &unit[Tx]{recs: recs}
		if err := u.run(ctx, s, func(context.Context, Tx) error { return nil }); err != nil {
			return nil, err
		}
		return ids(recs), nil
	}
	for i := range recs {
		recs[i].Message = recs[i].Message.Clone()
	}
	if err := s.add(recs, ps); err != nil {
		return nil, err
	}
	return ids(recs), nil
}

// current is the unit of this UnitOfWork in ctx, ended or not; nil if there is
// none.
func (u *UnitOfWork[Tx]) current(ctx context.Context) *unit[Tx] {
	s, _ := ctx.Value(unitKey{u}).(*unit[Tx])
	return s
}

// run is one whole transaction.
func (u *UnitOfWork[Tx]) run(ctx context.Context, s *unit[Tx], fn func(context.Context, Tx) error) error {
	tx, err := u.beginner.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin a unit of work: %w", err)
	}
	if isNil(tx) {
		return invalid("begin a unit of work: the Beginner returned a nil transaction")
	}
	s.tx = tx

	over := false // committed or rolled back
	defer func() {
		// A panic or runtime.Goexit: neither returns through the code below.
		if !over {
			s.end()
			u.rollback(ctx, tx)
		}
	}()
	wrote, err := u.work(ctx, s, fn)
	if err != nil {
		over = true
		if rerr := u.rollback(ctx, tx); rerr != nil {
			err = errors.Join(err, fmt.Errorf("roll back the unit of work: %w", rerr))
		}
		return err
	}
	if err := u.beginner.Commit(ctx, tx); err != nil {
		over = true
		u.rollback(ctx, tx)
		return fmt.Errorf("commit the unit of work: it may have committed all the same, look before you repeat it: %w", err)
	}
	over = true
	if wrote && u.committed != nil {
		u.committed()
	}
	return nil
}

// work is everything between begin and commit.
func (u *UnitOfWork[Tx]) work(ctx context.Context, s *unit[Tx], fn func(context.Context, Tx) error) (wrote bool, err error) {
	err = fn(context.WithValue(ctx, unitKey{u}, s), s.tx)
	recs, doomed := s.end()
	switch {
	case err != nil:
		return false, err
	case doomed != nil:
		return false, doomed
	case ctx.Err() != nil:
		err = ctx.Err()
		if cause := context.Cause(ctx); cause != err {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		return false, fmt.Errorf("unit of work rolled back before commit: %w", err)
	case len(recs) == 0:
		return false, nil
	}
	if err := u.outbox.enlister.Enlist(ctx, s.tx, recs...); err != nil {
		return false, fmt.Errorf("write %d messages of the unit of work: %w", len(recs), err)
	}
	return true, nil
}

func (u *UnitOfWork[Tx]) rollback(ctx context.Context, tx Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	return u.beginner.Rollback(ctx, tx)
}

// errUnitEnded is what a context returns that has outlived its unit.
var errUnitEnded = fmt.Errorf("%w: the unit of work of this context has ended and nothing was written: use the context from outside the unit", ErrTxDone)

func (s *unit[Tx]) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errUnitEnded
	}
	return nil
}

// add buffers recs, which were made of ps. Without the look at ended under the
// lock this could happen: open, the unit's end takes the buffer, add succeeds,
// and the messages are lost.
func (s *unit[Tx]) add(recs []Record, ps []Publication) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errUnitEnded
	}
	for i := range ps {
		if _, twice := s.seen[ps[i].ID]; twice {
			return fmt.Errorf("publication %d of %d: %w: %s was published in this unit of work already", i, len(ps), ErrDuplicateID, ps[i].ID)
		}
	}
	for i := range ps {
		if ps[i].ID != (ID{}) {
			if s.seen == nil {
				s.seen = make(map[ID]struct{})
			}
			s.seen[ps[i].ID] = struct{}{}
		}
	}
	s.recs = append(s.recs, recs...)
	return nil
}

// end closes the unit and returns what it holds. A nested Do that still runs
// would go on writing, and could fail, after the commit: it dooms the unit.
func (s *unit[Tx]) end() (recs []Record, doomed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nested > 0 && s.doomed == nil {
		s.doomed = errors.New("unit of work rolled back: a nested Do had not returned when it ended: wait for its goroutine")
	}
	s.ended = true
	recs, s.recs = s.recs, nil
	return recs, s.doomed
}

// join runs fn in the unit.
func (s *unit[Tx]) join(ctx context.Context, fn func(context.Context, Tx) error) (err error) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return errUnitEnded
	}
	s.nested++
	s.mu.Unlock()

	returned := false
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.nested--
		switch {
		case !returned: // a panic or runtime.Goexit
			err = errors.New("it did not return")
		case err == nil && s.ended:
			err = errUnitEnded
		}
		if err != nil && s.doomed == nil {
			s.doomed = fmt.Errorf("unit of work rolled back: a nested Do failed: %w", err)
		}
	}()
	err = fn(ctx, s.tx)
	returned = true
	return err
}
