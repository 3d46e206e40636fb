package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// ID identifies a message for its whole life: in the table, on the wire, in
// dead letters and after a replay. It is a UUIDv7 (RFC 9562, section 5.7).
// The zero ID is invalid in a record; in a cursor it means "from the start".
type ID = uuid.UUID

// Token is the fencing token of one attempt. It is a type of its own so that
// it cannot be mistaken for an ID. A token is never used for a second attempt;
// the zero Token is invalid.
type Token [16]byte

// Lane numbers the ordered lanes of a store from 1. Rows without an ordering
// key carry [Unordered] in the contract, whatever lane the store keeps them in.
// Negative lanes are invalid.
type Lane int32

// Unordered is the zero Lane: the record has no ordering key.
const Unordered Lane = 0

// Record is one outbox row (contract S1). What was enlisted comes back equal,
// field by field, times in microseconds UTC (S2, S3).
type Record struct {
	// ID is the message's UUIDv7. Required.
	ID ID
	// Transport names the route, and so the transport, that delivers the
	// message. Required, at most [MaxName] bytes.
	Transport string
	// Type is the stable wire type including its version, for example
	// "shop.order.placed.v1"; never a Go type name. Required, at most
	// [MaxName] bytes.
	Type string
	// Message is the serialized message.
	Message Message
	// CreatedAt is when the message was made. Truncated to microseconds.
	// Required.
	CreatedAt time.Time
	// Lane is assigned by the store from the ordering key; it must be
	// [Unordered] when enlisted (S6).
	Lane Lane
	// Attempts counts the failed attempts; 0 when enlisted (S6).
	Attempts int
	// LastError is the reason of the last failed attempt; "" when enlisted
	// (S6).
	LastError string
	// TenantID is the tenant the message belongs to; "" means none. At most
	// [MaxName] bytes.
	TenantID string

	drawn ID // the ID, where the call that made the record has drawn it
}

// Fresh reports whether [Outbox.Publish] or [Outbox.PublishAll] has drawn the ID
// for this record. No other message has it, so an [Enlister] need not look for it
// among what is pending: a unique constraint is enough, which still notices that
// the same record is enlisted again, unless the first one has been moved meanwhile
// to where the constraint does not reach. It is false in records that others have
// made or given another ID.
func (rec *Record) Fresh() bool { return rec.drawn != (ID{}) && rec.drawn == rec.ID }

// ReadRequest selects the rows of one [Store.ReadPending] call.
type ReadRequest struct {
	// Lane is an ordered lane, or [Unordered] for all unordered rows.
	Lane Lane
	// Now is the instant at which eligibility is judged.
	Now time.Time
	// After is exclusive; the zero ID starts at the beginning. It bounds one
	// scan only: a later sweep without it sees rows that became eligible.
	After ID
}

// Claim is the right to send one row once: its ID and the fencing token of the
// attempt. Both must be non-zero (C7).
type Claim struct {
	ID    ID
	Token Token
}

// Failure is the outcome of an attempt that did not deliver.
type Failure struct {
	// Reason is stored as the record's LastError, cut to [MaxReason] bytes of
	// valid UTF-8. "" is invalid (C7).
	Reason string
	// RetryAt is the earliest time of the next attempt; zero means at once.
	RetryAt time.Time
}

// Store is the durable outbox as a dispatcher sees it: six methods, and
// nothing else has to exist. Faster or richer stores implement the optional
// capabilities of this package as well; relay.New probes them once.
//
// An instance need not allow concurrent calls, and the memory of the records it
// fills need only stay valid until its next read or its closing (R7), unless
// it declares [Concurrent].
//
// "Now" is always the instant passed by the caller; a claim is live while its
// expiry is after now (R4). Every mutation is atomic, and durable before it
// returns. An error or a cancellation can arrive after the commit: the
// mutation may have happened, and callers tolerate that (C8).
type Store interface {
	// ReadPending fills dst with eligible rows of one lane in ascending ID
	// order and returns how many it wrote (R1-R8). It claims nothing. An empty
	// dst returns 0 without a query. A row that cannot be decoded does not hide
	// the others: they are returned beside a [*RowError] that names the bad
	// ones. A negative lane is [ErrInvalidArgument].
	ReadPending(ctx context.Context, req ReadRequest, dst []Record) (n int, err error)

	// TryClaim stores the claim's token and expiry if the row is eligible at
	// now (C1, C2). false: the row is absent or not eligible, nothing changed.
	// A zero ID or token, or expires at or before now, is
	// [ErrInvalidArgument].
	TryClaim(ctx context.Context, c Claim, now, expires time.Time) (bool, error)

	// RenewClaim extends a matching live claim; it never shortens one (C3).
	// false: no such live claim, nothing changed.
	RenewClaim(ctx context.Context, c Claim, now, expires time.Time) (bool, error)

	// Complete deletes a sent row under a matching live claim (C4, C6).
	// false: no such live claim, nothing changed.
	Complete(ctx context.Context, c Claim, now time.Time) (bool, error)

	// RecordFailure adds one attempt, stores the reason and the retry time and
	// releases the claim, all at once, under a matching live claim (C5, C6).
	// false: no such live claim, nothing changed; so a repeat with the
	// released token counts no second attempt.
	RecordFailure(ctx context.Context, c Claim, now time.Time, f Failure) (bool, error)

	// PendingCount counts the rows that are eligible at now across all lanes
	// (B1-B3). It returns 0 only when a query found none, and
	// [ErrCountUnavailable] when the store cannot know.
	PendingCount(ctx context.Context, now time.Time) (int64, error)
}

// Enlister writes records through the caller's own transaction: commit
// publishes them, rollback leaves nothing (E1). Tx is the native transaction
// type of the caller's database library.
type Enlister[Tx any] interface {
	// Enlist inserts recs, in argument order, inside tx. All borrowed memory is
	// copied before it returns (E2). It costs round trips by the batch, not by
	// the row (E5), and runs no statement that fails for an expected reason
	// (E6): after an error the transaction can still be rolled back, and none
	// of recs must be taken for written.
	//
	// Lock or update the rows of the aggregate before calling Enlist, or make
	// it the last statement before commit: the order of a key's messages is the
	// order of their inserts, and only a lock makes that the order of the
	// commits.
	//
	// Errors: [ErrInvalidArgument], [ErrNotPersistable], [ErrUnknownRoute] and
	// [ErrTooLarge] before any statement; [ErrDuplicateID] with no row of the
	// call left in the transaction, which stays usable (E8); [ErrTxDone] when tx
	// has ended, where the library can tell; else a wrapped database error.
	Enlist(ctx context.Context, tx Tx, recs ...Record) error
}
