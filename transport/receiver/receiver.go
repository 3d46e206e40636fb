// Package receiver handles what a broker delivers, once per message: the
// handler's writes and the inbox's reservation are one transaction, and the
// message is acknowledged after its commit. It is what receivers of the
// transports have in common (natstransport.Receive, httptransport.Handler); a
// receiver of another broker is a few lines around [Receiver.Handle].
//
//	in, err := inbox.New[sqlstore.Tx](store, nil)
//	...
//	r, err := receiver.New(in, sqlstore.Begin(db, nil), bill, &receiver.Options[sqlstore.Tx]{Consumer: "billing", Dead: keep})
package receiver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// Message is one delivery of a message.
type Message struct {
	transport.Incoming
	// Body is the payload. It belongs to the receiver: a handler that keeps it
	// copies it.
	Body []byte
	// Attempt counts the deliveries from 1; 0 where the broker does not.
	Attempt int
	// Stored is when the broker took the message; zero where it does not say.
	Stored time.Time
	// Native is the broker's own message, such as a jetstream.Msg; not to be
	// acknowledged. May be nil.
	Native any
}

// Handler makes the effect of a message in tx, and neither commits nor rolls
// back. An error rolls back: the message is delivered again, unless it is
// [Permanent] or the last of Options.MaxAttempts.
type Handler[Tx any] func(ctx context.Context, tx Tx, m Message) error

// Options configure a [Receiver].
type Options[Tx any] struct {
	// Consumer is its name in the inbox. Required; each effect has one of its
	// own.
	Consumer string
	// Dead keeps a message that cannot be handled, by writes in tx or elsewhere,
	// and reason says why; then the message counts as processed, in the same
	// transaction. A message without a valid id, which the inbox cannot tell from
	// others, comes here at each of its deliveries until this succeeds. Defaults
	// to nil: no message is given up.
	Dead func(ctx context.Context, tx Tx, m Message, reason error) error
	// MaxAttempts is how many deliveries may fail in their handler before Dead takes
	// the message; -1 is no end. It needs Dead, and a broker that counts. Defaults
	// to 10.
	//
	// Where no transaction begins, or the message cannot be reserved, the handler has
	// not failed, nor where the commit fails and no transaction can be made after it:
	// the database is away. The broker counts these deliveries too, so its count is
	// taken only for a message that it stored after the receiver was made and after
	// the last such failure. For any other each receiver counts the failures that it
	// sees, at least those of the last 10,000 messages that failed: one that several
	// receivers share, or that outlives them, may fail more often.
	MaxAttempts int
	// BackoffMin and BackoffMax bound the wait before a message is delivered
	// again: it doubles with each attempt, with full jitter. Default to 100 ms
	// and 1 min.
	BackoffMin, BackoffMax time.Duration
	// Timeout bounds the handling of one delivery, transaction included, and then once
	// more each what may follow a failure: a look whether the database is there, after a
	// commit, and Dead. Keep it below the broker's patience. Defaults to 30 s.
	Timeout time.Duration
	// OnError is called with each delivery that failed, concurrently if the
	// broker's deliveries are. Defaults to nil.
	OnError func(Message, error)
}

// Permanent marks an error that no further delivery would mend: the message goes
// to Options.Dead at once. nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ error }

func (p *permanent) Unwrap() error { return p.error }

// Receiver handles deliveries. It is safe for concurrent use. It starts nothing.
type Receiver[Tx any] struct {
	in     *inbox.Inbox[Tx]
	begin  outbox.Beginner[Tx]
	handle Handler[Tx]
	opts   Options[Tx]
	failed failures
}

// New returns a receiver. Errors are outbox.ErrInvalidArgument.
func New[Tx any](in *inbox.Inbox[Tx], begin outbox.Beginner[Tx], handle Handler[Tx], opts *Options[Tx]) (*Receiver[Tx], error) {
	r := &Receiver[Tx]{in: in, begin: begin, handle: handle, failed: failures{since: time.Now()}}
	if opts != nil {
		r.opts = *opts
	}
	o := &r.opts
	if o.MaxAttempts == 0 {
		o.MaxAttempts = 10
	}
	if o.BackoffMin == 0 {
		o.BackoffMin = 100 * time.Millisecond
	}
	if o.BackoffMax == 0 {
		o.BackoffMax = max(time.Minute, o.BackoffMin)
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	switch {
	case in == nil:
		return nil, invalid("the inbox is nil: make one with inbox.New")
	case begin == nil:
		return nil, invalid("the Beginner is nil: pass one for your database library")
	case handle == nil:
		return nil, invalid("the handler is nil")
	case o.MaxAttempts < -1:
		return nil, invalid("MaxAttempts %d: use a positive number, or -1 for no end", o.MaxAttempts)
	case o.BackoffMin < time.Millisecond || o.BackoffMax < o.BackoffMin:
		return nil, invalid("backoff from %v to %v: use 1ms or more, and not less for the longest", o.BackoffMin, o.BackoffMax)
	case o.Timeout < time.Millisecond:
		return nil, invalid("Timeout %v: use 1ms or more", o.Timeout)
	}
	if err := inbox.CheckName("Consumer", o.Consumer); err != nil {
		return nil, invalid("%v", err)
	}
	return r, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outbox.ErrInvalidArgument}, args...)...)
}

// Verdict is what is to become of a delivery.
type Verdict struct {
	// Ack: acknowledge it, its effect is committed, or was before, or it is kept
	// as a dead letter. Else have it delivered again after Delay.
	Ack   bool
	Delay time.Duration
	// Err says why it failed; with Ack, why it is a dead letter.
	Err error
}

// Handle handles one delivery. parsed is the error of reading its headers, nil if
// there was none: what cannot be read will not be better next time. It returns
// when the transaction has ended; a panic of the handler is an error.
//
// After a commit whose answer was lost the delivery fails, and the next one finds
// the message processed.
func (r *Receiver[Tx]) Handle(ctx context.Context, m Message, parsed error) Verdict {
	if parsed == nil {
		parsed = inbox.CheckName("message id", m.ID)
	}
	err, ran, handled := parsed, false, false
	if parsed == nil {
		err = r.once(ctx, m, func(ctx context.Context, tx Tx) error {
			ran = true
			err := r.handle(ctx, tx, m)
			handled = err == nil
			return err
		})
	}
	if err == nil {
		r.failed.forget(m.ID)
		return Verdict{Ack: true}
	}
	poison := false
	switch {
	case r.opts.Dead == nil || errors.Is(err, inbox.ErrInProgress):
	case parsed != nil:
		poison = true
	case !ran || handled && !r.reachable(ctx):
		r.failed.outage()
	default:
		var p *permanent
		poison = errors.As(err, &p) || r.opts.MaxAttempts > 0 && m.Attempt > 0 && r.failed.count(m) >= r.opts.MaxAttempts
	}
	if poison {
		if buried := r.bury(ctx, m, err); buried == nil {
			r.failed.forget(m.ID)
			r.say(m, err)
			return Verdict{Ack: true, Err: err}
		} else {
			err = errors.Join(err, fmt.Errorf("keep the message as a dead letter: %w", buried))
		}
	}
	r.say(m, err)
	return Verdict{Delay: r.delay(m.Attempt), Err: err}
}

// reachable tells whether the database takes a transaction. A commit that fails though
// it does was refused for what is in it, such as by a deferred constraint.
func (r *Receiver[Tx]) reachable(ctx context.Context) bool {
	return r.within(ctx, func(context.Context, Tx) error { return nil }) == nil
}

func (r *Receiver[Tx]) say(m Message, err error) {
	if r.opts.OnError != nil {
		r.opts.OnError(m, err)
	}
}

// bury hands the message to Dead, once if it has an id.
func (r *Receiver[Tx]) bury(ctx context.Context, m Message, reason error) error {
	dead := func(ctx context.Context, tx Tx) error { return r.opts.Dead(ctx, tx, m, reason) }
	if inbox.CheckName("message id", m.ID) != nil {
		return r.within(ctx, dead)
	}
	return r.once(ctx, m, dead)
}

// once runs fn in a transaction unless the message was processed.
func (r *Receiver[Tx]) once(ctx context.Context, m Message, fn func(context.Context, Tx) error) error {
	return r.within(ctx, func(ctx context.Context, tx Tx) error {
		_, err := r.in.Process(ctx, tx, m.ID, r.opts.Consumer, func(ctx context.Context) error { return fn(ctx, tx) })
		return err
	})
}

// rollbackTimeout bounds a rollback, which runs on after the context's end.
const rollbackTimeout = 5 * time.Second

// within runs fn in a transaction of at most Options.Timeout: a handler that has used
// up its own leaves Dead another.
func (r *Receiver[Tx]) within(ctx context.Context, fn func(context.Context, Tx) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	tx, err := r.begin.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	committed := false
	defer func() {
		if committed {
			return
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v\n%s", p, debug.Stack())
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if e := r.begin.Rollback(clean, tx); e != nil {
			err = errors.Join(err, fmt.Errorf("roll back: %w", e))
		}
	}()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := r.begin.Commit(ctx, tx); err != nil {
		return fmt.Errorf("commit, which may have happened: %w", err)
	}
	committed = true
	return nil
}

// delay is full jitter under a bound that doubles with each attempt.
func (r *Receiver[Tx]) delay(attempt int) time.Duration {
	bound := r.opts.BackoffMin
	for i := 1; i < attempt && bound < r.opts.BackoffMax; i++ {
		bound = 2 * min(bound, r.opts.BackoffMax/2)
	}
	return time.Duration(1 + rand.Int64N(int64(min(bound, r.opts.BackoffMax))))
}
