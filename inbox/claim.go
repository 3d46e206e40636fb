package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// ErrInProgress: another consumer holds a claim of the message whose lease has
// not ended. Do not acknowledge: let the broker deliver it again later.
var ErrInProgress = errors.New("message is in progress")

// Token names one claim of a message.
type Token [16]byte

// State is what a claim has found.
type State uint8

const (
	// Claimed: the message was new or released, or another's lease had ended; the
	// claim is the caller's now.
	Claimed State = iota + 1
	// InProgress: another claim of it lives.
	InProgress
	// Done: it was processed; acknowledge it.
	Done
)

func (s State) String() string {
	switch s {
	case Claimed:
		return "claimed"
	case InProgress:
		return "in progress"
	case Done:
		return "done"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// ClaimStore is what a [Store] can do beside: claims of messages whose effect
// lies outside the database. Each call is durable when it returns, in a
// transaction of its own. All times are the caller's.
type ClaimStore interface {
	// ClaimMessage takes the message for t until r.ExpiresAt, if there is no
	// record of it or that one has expired at r.ProcessedAt, now. A claim is a
	// record that expires with its lease. It waits for a transaction that has
	// reserved the message.
	ClaimMessage(ctx context.Context, r Record, t Token) (State, error)
	// RenewMessage prolongs the lease of t to r.ExpiresAt, and never shortens it.
	// false: at r.ProcessedAt, now, the claim does not live; nothing changed.
	RenewMessage(ctx context.Context, r Record, t Token) (bool, error)
	// CompleteMessage makes the claim of t the record r. false: another one has
	// taken the message, or it was purged; nothing changed.
	CompleteMessage(ctx context.Context, r Record, t Token) (bool, error)
	// ReleaseMessage deletes the claim of t. false: there is none.
	ReleaseMessage(ctx context.Context, consumer, messageID string, t Token) (bool, error)
}

// Claim is a message that the caller has for a while. It is safe for concurrent
// use: a goroutine may renew it beside the handler.
type Claim struct {
	store               ClaimStore
	token               Token
	messageID, consumer string
	record              func() Record
}

// Claim takes the message for a handler whose effect lies outside of the
// database, so that [Inbox.Process] cannot make it one with the reservation: an
// e-mail, a call of another service. The claim is the caller's if the state is
// [Claimed], and nil otherwise.
//
//	claim, state, err := in.Claim(ctx, msg.ID, "mailer", time.Minute)
//	switch {
//	case err != nil || state == inbox.InProgress:
//		return msg.NakWithDelay(time.Minute)
//	case state == inbox.Done:
//		return msg.Ack()
//	}
//	if err := send(msg); err != nil {
//		claim.Release(ctx) // the next delivery tries again at once
//		return msg.Nak()
//	}
//	if _, err := claim.Complete(ctx); err != nil {
//		return err // not acknowledged: the message may be sent twice
//	}
//	return msg.Ack()
//
// One claim of a message lives at a time, but the effect is at least once and not
// exactly once: a process that ends between the effect and Complete leaves a
// lease that ends, and the effect is made again. Make it idempotent under the
// message's id where the other side can.
//
// lease is 1 s to 24 h, and far above the skew of the consumers' clocks: each
// judges by its own. A handler that takes longer renews it. The errors are those
// of [Inbox.Process]; a store without claims is [ErrInvalidArgument].
func (in *Inbox[Tx]) Claim(ctx context.Context, messageID, consumer string, lease time.Duration) (*Claim, State, error) {
	if err := check(messageID, consumer); err != nil {
		return nil, 0, err
	}
	if err := checkLease(lease); err != nil {
		return nil, 0, err
	}
	store, ok := in.store.(ClaimStore)
	if !ok {
		return nil, 0, fmt.Errorf("%w: the inbox store %T has no claims: use Process", ErrInvalidArgument, in.store)
	}
	c := &Claim{store: store, messageID: messageID, consumer: consumer, record: func() Record { return in.record(messageID, consumer) }}
	if _, err := rand.Read(c.token[:]); err != nil {
		return nil, 0, fmt.Errorf("draw a token: %w", err)
	}
	state, err := store.ClaimMessage(ctx, c.leased(lease), c.token)
	if err != nil {
		return nil, 0, fmt.Errorf("claim message %q for consumer %q: %w", messageID, consumer, err)
	}
	if state != Claimed {
		return nil, state, nil
	}
	return c, Claimed, nil
}

func checkLease(d time.Duration) error {
	if d < time.Second || d > 24*time.Hour {
		return fmt.Errorf("%w: a lease of %v: use 1s to 24h, and renew it", ErrInvalidArgument, d)
	}
	return nil
}

func (c *Claim) leased(lease time.Duration) Record {
	r := Record{Consumer: c.consumer, MessageID: c.messageID, ProcessedAt: now()}
	r.ExpiresAt = roundUp(r.ProcessedAt.Add(lease))
	return r
}

// Renew prolongs the lease to that length from now; a longer one stays. false:
// the claim has ended, and another consumer may be at the message: stop.
func (c *Claim) Renew(ctx context.Context, lease time.Duration) (bool, error) {
	if err := checkLease(lease); err != nil {
		return false, err
	}
	ok, err := c.store.RenewMessage(ctx, c.leased(lease), c.token)
	return ok, c.wrap("renew the claim of", err)
}

// Complete records the message as processed, for Options.Retention. It does so
// after the lease's end too, as long as nobody else has taken the message. false:
// somebody has, and makes the effect again.
func (c *Claim) Complete(ctx context.Context) (bool, error) {
	ok, err := c.store.CompleteMessage(ctx, c.record(), c.token)
	return ok, c.wrap("complete", err)
}

// Release gives the message back as if it had never been claimed. false: the
// claim is not there any more.
func (c *Claim) Release(ctx context.Context) (bool, error) {
	ok, err := c.store.ReleaseMessage(ctx, c.consumer, c.messageID, c.token)
	return ok, c.wrap("release", err)
}

func (c *Claim) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s message %q of consumer %q: %w", what, c.messageID, c.consumer, err)
}
