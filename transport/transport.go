package transport

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/postrider/postrider/outbox"
)

// Outcome is what the broker did with one message.
type Outcome uint8

const (
	// Unsent is the zero value: the message was not handed to the broker. A
	// delivery whose outcome was never reported reads as Unsent, so a transport
	// that forgets one can never make it look delivered.
	Unsent Outcome = iota
	// Accepted: the broker has durably accepted the message.
	Accepted
	// Refused: the broker answered no, for now. Spends an attempt.
	Refused
	// Permanent: the message can never be accepted (too large, a header the
	// protocol cannot carry). It is not tried again.
	Permanent
	// Unroutable: the broker has no place for the destination (no stream, no
	// queue). The destination may appear later. It spends no attempt: the relay
	// parks the key at once; a message without a key becomes a dead letter.
	Unroutable
	// Unreachable: the broker could not be reached; the message did not go
	// out. Spends no attempt.
	Unreachable
	// Unknown: the message may or may not have been accepted (no answer, a
	// connection lost in between). It is sent again.
	Unknown
)

var outcomeNames = [...]string{"unsent", "accepted", "refused", "permanent", "unroutable", "unreachable", "unknown"}

// String returns the outcome's name in lower case.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "invalid"
}

// ErrLeaseEnded is what [Delivery.Begin] returns when the message must not be
// sent by this process any more.
var ErrLeaseEnded = errors.New("lease ended before the message was sent")

// Transport sends messages to one broker. It takes the caller's client and
// does not close it. Send is called concurrently, with different deliveries.
type Transport interface {
	// Send hands the deliveries to the broker, in order, and returns when each
	// has been reported or ctx is done. It calls [Delivery.Begin] immediately
	// before the bytes of a message go out, in each retry too, and
	// [Delivery.Report] as soon as the outcome is known, so that the next
	// message of the key can follow. A message that was handed over and not
	// answered when ctx ends is Unknown. After Send has returned it does not
	// touch the deliveries again; whatever it did not report was not sent.
	//
	// Unless the transport is a [Pipeliner], no two deliveries of one key are
	// ever in flight at once.
	Send(ctx context.Context, ds []*Delivery)
}

// Pipeliner is implemented by transports that keep order within a key by
// themselves: in one Send, when a message of a key is not accepted, no later
// message of that key is. The relay then sends many messages of a key in one
// batch.
type Pipeliner interface {
	PipelinesKeys() bool
}

// Checker is implemented by transports that can tell at start that they will
// not work (no JetStream, no stream), with an error that names the remedy.
type Checker interface {
	Check(ctx context.Context) error
}

// Sink receives outcomes. Reported may be called from any goroutine, once per
// delivery.
type Sink interface {
	Reported(d *Delivery)
}

// Lease tells whether a delivery may still be sent by this process.
type Lease interface {
	Live() bool
}

// Delivery is one message on its way. Record and the position fields are
// read-only for the transport; their memory is the relay's and valid until the
// delivery has been reported.
type Delivery struct {
	Record *outbox.Record
	Lane   outbox.Lane // stored lane; 0 outside lanes
	Epoch  int64       // of the lane's owner; 0 outside lanes
	Pos    int64       // position in the lane; 0 outside lanes

	Lease Lease // nil: always live
	Sink  Sink  // nil: nobody listens

	state   atomic.Uint32 // 0 open, 1 being reported, 2 reported
	outcome Outcome
	err     error
}

// Begin must be called immediately before the bytes go out. A non-nil error
// ([ErrLeaseEnded]) means: do not send; report Unsent or nothing.
func (d *Delivery) Begin() error {
	if d.Lease != nil && !d.Lease.Live() {
		return ErrLeaseEnded
	}
	return nil
}

// Report sets the outcome; err says why when it is not Accepted. The first
// call counts, later ones are ignored. Safe for concurrent use.
func (d *Delivery) Report(o Outcome, err error) {
	if !d.state.CompareAndSwap(0, 1) {
		return
	}
	d.outcome, d.err = o, err
	d.state.Store(2)
	if d.Sink != nil {
		d.Sink.Reported(d)
	}
}

// Outcome returns what was reported: Unsent and nil until then.
func (d *Delivery) Outcome() (Outcome, error) {
	if d.state.Load() != 2 {
		return Unsent, nil
	}
	return d.outcome, d.err
}
