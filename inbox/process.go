package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// MaxName is the limit of a message id and of a consumer's name, in bytes.
const MaxName = 255

// ErrInvalidArgument: the call itself is wrong; nothing changed.
var ErrInvalidArgument = errors.New("invalid argument")

// Options change an [Inbox]. nil and the zero value mean the defaults.
type Options struct {
	// Retention is how long a processed message is remembered, rounded up to
	// microseconds: at least a second, or negative for ever. It must outlast
	// the longest redelivery. Defaults to 7 days.
	Retention time.Duration
	// PurgeBatch is how many records Purge deletes in one transaction; 1 to
	// 10,000. Defaults to 1000.
	PurgeBatch int
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Retention == 0 {
		out.Retention = 7 * 24 * time.Hour
	}
	if out.PurgeBatch == 0 {
		out.PurgeBatch = 1000
	}
	return out
}

func (o *Options) validate() error {
	if o.Retention > 0 && o.Retention < time.Second {
		return fmt.Errorf("%w: Retention %s: use at least 1s, longer than the longest redelivery, or a negative one for ever", ErrInvalidArgument, o.Retention)
	}
	if o.PurgeBatch < 1 || o.PurgeBatch > 10_000 {
		return fmt.Errorf("%w: PurgeBatch %d: use 1 to 10000", ErrInvalidArgument, o.PurgeBatch)
	}
	return nil
}

// Inbox makes one effect per message and consumer. Tx is the native
// transaction type of the consumer's database library. It is safe for
// concurrent use, as far as each transaction stays with one caller.
type Inbox[Tx any] struct {
	store Store[Tx]
	opts  Options
}

// New returns an Inbox over s. It starts nothing and runs no statement.
func New[Tx any](s Store[Tx], opts *Options) (*Inbox[Tx], error) {
	o := opts.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("%w: no inbox store", ErrInvalidArgument)
	}
	return &Inbox[Tx]{store: s, opts: o}, nil
}

// Process reserves the message for the consumer inside tx and, if it is the
// first to do so, calls fn once, on the caller's goroutine and with ctx. It
// neither commits nor rolls back: the effect and the reservation are the
// caller's transaction, and only its commit makes either of them last.
//
// processed is true when fn has run and returned nil: commit, then
// acknowledge. false without an error is a duplicate: fn did not run, tx is
// usable, and the message is to be acknowledged as well. A message whose record
// has expired counts as new, purged or not.
//
// With any error the caller rolls tx back, which frees the message; committing
// instead would mark it as processed. The error of fn is returned as it is,
// every other one names the message. A panic of fn passes through: it must end
// in a rollback too.
//
// A message that another consumer of this name has under a live [Claim] is
// [ErrInProgress].
//
// The id is compared byte by byte; use the CloudEvents id, which is the
// outbox's record id. Consumers are independent of each other: give each
// logically separate effect a name. Ids and names are 1 to [MaxName] bytes of
// UTF-8 without control bytes; others, and a nil fn, are [ErrInvalidArgument]
// before any statement.
func (in *Inbox[Tx]) Process(ctx context.Context, tx Tx, messageID, consumer string, fn func(ctx context.Context) error) (processed bool, err error) {
	if err := check(messageID, consumer); err != nil {
		return false, err
	}
	if fn == nil {
		return false, fmt.Errorf("%w: no handler for message %q: pass a func", ErrInvalidArgument, messageID)
	}
	first, err := in.store.Reserve(ctx, tx, in.record(messageID, consumer))
	if err != nil {
		return false, fmt.Errorf("reserve message %q for consumer %q: %w", messageID, consumer, err)
	}
	if !first {
		return false, nil
	}
	if err := fn(ctx); err != nil {
		return false, err
	}
	return true, nil
}

// HasBeenProcessed reports whether the message has a record that has not
// expired, as tx sees it.
//
// Asking first and marking afterwards is a race: two consumers ask, both see
// false, both make the effect, both mark. Use [Inbox.Process], which reserves,
// wherever the effect lies in the same database.
func (in *Inbox[Tx]) HasBeenProcessed(ctx context.Context, tx Tx, messageID, consumer string) (bool, error) {
	if err := check(messageID, consumer); err != nil {
		return false, err
	}
	ok, err := in.store.Processed(ctx, tx, consumer, messageID, now())
	if err != nil {
		return false, fmt.Errorf("look up message %q for consumer %q: %w", messageID, consumer, err)
	}
	return ok, nil
}

// MarkProcessed records the message as processed inside tx; a record that
// exists is overwritten and kept for the whole retention from now. See
// [Inbox.HasBeenProcessed] for what the two cannot do.
func (in *Inbox[Tx]) MarkProcessed(ctx context.Context, tx Tx, messageID, consumer string) error {
	if err := check(messageID, consumer); err != nil {
		return err
	}
	if err := in.store.Mark(ctx, tx, in.record(messageID, consumer)); err != nil {
		return fmt.Errorf("mark message %q for consumer %q: %w", messageID, consumer, err)
	}
	return nil
}

// Purge deletes the records that have expired by now, in batches of at most
// Options.PurgeBatch with a transaction each, until a batch finds none, and
// returns how many are gone, beside the error that ended it, if any. Run it from time to time, in one
// process; running it in several is harmless. Nothing depends on it but the
// size of the table.
func (in *Inbox[Tx]) Purge(ctx context.Context) (int, error) {
	at, total := now(), 0
	for {
		if err := ctx.Err(); err != nil {
			return total, fmt.Errorf("purge the inbox: %w", context.Cause(ctx))
		}
		n, err := in.store.Purge(ctx, at, in.opts.PurgeBatch)
		total += n
		if err != nil {
			return total, fmt.Errorf("purge the inbox: %w", err)
		}
		if n == 0 { // not n < PurgeBatch: a store may delete less at a time
			return total, nil
		}
	}
}

func (in *Inbox[Tx]) record(messageID, consumer string) Record {
	r := Record{Consumer: consumer, MessageID: messageID, ProcessedAt: now()}
	if in.opts.Retention > 0 {
		r.ExpiresAt = roundUp(r.ProcessedAt.Add(in.opts.Retention))
	}
	return r
}

// roundUp makes microseconds of an instant: rounding a Duration up would overflow at
// the longest ones.
func roundUp(t time.Time) time.Time { return t.Add(999 * time.Nanosecond).Truncate(time.Microsecond) }

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func check(messageID, consumer string) error {
	if err := CheckName("message id", messageID); err != nil {
		return err
	}
	return CheckName("consumer", consumer)
}

// CheckName is the check of a message id or a consumer's name, which what says:
// an [ErrInvalidArgument] unless it is 1 to [MaxName] bytes of UTF-8 without control
// bytes.
func CheckName(what, value string) error {
	switch {
	case value == "":
		return fmt.Errorf("%w: %s is empty: give it 1 to %d bytes", ErrInvalidArgument, what, MaxName)
	case len(value) > MaxName:
		return fmt.Errorf("%w: %s of %d bytes, limit %d: use a hash of it", ErrInvalidArgument, what, len(value), MaxName)
	case !utf8.ValidString(value):
		return fmt.Errorf("%w: %s %q is not valid UTF-8", ErrInvalidArgument, what, value)
	}
	for i := range len(value) {
		if value[i] < 0x20 || value[i] == 0x7f {
			return fmt.Errorf("%w: %s %q has a control byte at %d: remove it", ErrInvalidArgument, what, value, i)
		}
	}
	return nil
}
