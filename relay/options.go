package relay

import (
	"cmp"
	"fmt"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// Options tune a relay. The zero value of every field means its default.
type Options struct {
	// TTL is how long a lease lasts without renewal; it is renewed every
	// TTL/3. After a crash the lanes are taken over within it. At least 1 s.
	// Defaults to 15 s.
	TTL time.Duration
	// PollMin and PollMax bound the adaptive polling: fast after traffic, slow
	// when idle. Wake cuts a wait short. Default to 5 ms and 500 ms.
	PollMin, PollMax time.Duration
	// Batch is the most messages in one Send; 1 to 1024. Defaults to 500.
	Batch int
	// InFlight is the most Sends at once per route; 1 to 64. Defaults to 4.
	InFlight int
	// BufferRows and BufferBytes bound what is held in memory of each route. A
	// read is not started when they are reached; one that has begun may go over
	// by what it returns. Default to 8192 rows and 16 MiB; at least 64 rows.
	BufferRows  int
	BufferBytes int
	// MaxAttempts is how many counted attempts a message has before Poison
	// decides. Outages of the broker are not counted. Defaults to 10;
	// negative means without end.
	MaxAttempts int
	// Poison says what becomes of a message that the broker refuses for good or
	// that has spent its attempts. One that is unroutable parks its key under
	// either policy. Defaults to DeadLetter.
	Poison Poison
	// BackoffMin and BackoffMax bound the wait before a retry: full jitter over
	// a span that doubles with each attempt. Default to 100 ms and 1 min.
	BackoffMin, BackoffMax time.Duration
	// Grace is how long a stopping relay lets sends finish before it cancels
	// them. Defaults to 10 s; negative cancels at once.
	Grace time.Duration
	// RequireOrder refuses a store that cannot keep order per key.
	RequireOrder bool
	// PlainLanes is how many ordered lanes a store without lanes and without
	// routes has. Ignored elsewhere. Defaults to 0: unordered rows only.
	PlainLanes int
	// Hooks observe the relay.
	Hooks Hooks
}

// Poison is a policy for messages that cannot be delivered.
type Poison uint8

const (
	// DeadLetter moves the message to the dead letters, and its key goes on.
	DeadLetter Poison = iota
	// ParkKey stops the key: its rows wait, in order, until an operator unparks
	// it. A message without a key becomes a dead letter.
	ParkKey
)

// Hooks are functions an operator's tools hang on; nil ones are skipped. They
// are called from the relay's goroutines, possibly at once, and must be quick.
type Hooks struct {
	// Store is called when the store is lost (err says why) and when it is
	// back (nil), never twice in a row for the same state.
	Store func(err error)
	// Route is called when a route's broker is lost and when it is back.
	Route func(route string, err error)
	// Lanes is called with every lane held, after a change.
	Lanes func(held []outbox.LaneLease)
	// Attempt is called once per outcome of a send.
	Attempt func(a Attempt)
	// Dead is called when a message has become a dead letter: it was refused
	// for good, or its attempts are spent.
	Dead func(route string, id outbox.ID, reason string)
	// Parked is called when a message has parked its key.
	Parked func(route string, key []byte, id outbox.ID, reason string)
	// TakenOver is called for a lane whose owner's lease ran out, or that was given
	// back before the messages were sent that a dead owner may have had in hand.
	TakenOver func(lease outbox.LaneLease)
	// Fenced is called when the store refused an outcome because the lane has
	// another owner: this relay was too late, and the message is sent again.
	Fenced func(route string, id outbox.ID)
	// LeaseLost is called when a lane is given up because its lease ended or
	// was taken.
	LeaseLost func(lease outbox.LaneLease, reason string)
	// Exhausted is called when a message has spent its attempts over a store
	// without lanes, and so without dead letters: it is tried for ever, at the
	// slowest pace.
	Exhausted func(route string, id outbox.ID, attempts int)
	// ClaimLost is called over a store without lanes when a row's claim ran out
	// before its outcome was written.
	ClaimLost func(route string, id outbox.ID)
	// Trouble is called for what should not happen and does no harm: a panic in
	// a transport, a settle that the database refuses.
	Trouble func(err error)
}

// Attempt is one finished send.
type Attempt struct {
	Record  *outbox.Record // valid during the call
	Lane    outbox.Lane
	Pos     int64
	Outcome transport.Outcome
	Err     error
}

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	c.TTL = cmp.Or(c.TTL, 15*time.Second)
	c.PollMin = cmp.Or(c.PollMin, 5*time.Millisecond)
	c.PollMax = cmp.Or(c.PollMax, max(500*time.Millisecond, c.PollMin))
	c.Batch = cmp.Or(c.Batch, 500)
	c.InFlight = cmp.Or(c.InFlight, 4)
	c.BufferRows = cmp.Or(c.BufferRows, 8192)
	c.BufferBytes = cmp.Or(c.BufferBytes, 16<<20)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	c.BackoffMin = cmp.Or(c.BackoffMin, 100*time.Millisecond)
	c.BackoffMax = cmp.Or(c.BackoffMax, max(time.Minute, c.BackoffMin))
	c.Grace = max(cmp.Or(c.Grace, 10*time.Second), 0)
	return c
}

func (o *Options) validate() error {
	for _, f := range [...]struct {
		name          string
		value, lo, hi int64
	}{
		{"TTL", int64(o.TTL), int64(time.Second), int64(time.Hour)},
		{"PollMin", int64(o.PollMin), int64(time.Millisecond), int64(time.Hour)},
		{"PollMax", int64(o.PollMax), int64(o.PollMin), int64(time.Hour)},
		{"Batch", int64(o.Batch), 1, 1024},
		{"InFlight", int64(o.InFlight), 1, 64},
		{"BufferRows", int64(o.BufferRows), 64, 1 << 30},
		{"BufferBytes", int64(o.BufferBytes), 1 << 10, 1 << 40},
		{"BackoffMin", int64(o.BackoffMin), int64(time.Millisecond), int64(24 * time.Hour)},
		{"BackoffMax", int64(o.BackoffMax), int64(o.BackoffMin), int64(24 * 365 * time.Hour)},
		{"Poison", int64(o.Poison), 0, int64(ParkKey)},
		{"PlainLanes", int64(o.PlainLanes), 0, 1 << 16},
	} {
		if f.value < f.lo || f.value > f.hi {
			show := func(v int64) string {
				switch f.name {
				case "TTL", "PollMin", "PollMax", "BackoffMin", "BackoffMax":
					return time.Duration(v).String()
				}
				return fmt.Sprint(v)
			}
			return fmt.Errorf("%w: relay option %s is %s: use %s to %s", outbox.ErrInvalidArgument, f.name, show(f.value), show(f.lo), show(f.hi))
		}
	}
	return nil
}
