package inbox

import (
	"context"
	"time"
)

// Record is one processed message of one consumer.
type Record struct {
	Consumer    string
	MessageID   string
	ProcessedAt time.Time
	ExpiresAt   time.Time // zero: never
}

// Store keeps the inbox table. Tx is the native transaction type of the
// consumer's database library. All times are the caller's; "now" is
// Record.ProcessedAt or the now argument.
type Store[Tx any] interface {
	// Reserve inserts r inside tx, or takes over a record that has expired at
	// r.ProcessedAt (ExpiresAt <= ProcessedAt). A concurrent reservation of the
	// same message waits for the other transaction's end. false: the message
	// was processed; nothing changed. No statement of it fails for a duplicate,
	// but the engine may end tx in a deadlock: if the other transaction is rolled
	// back, some engines do so to those who wait for it.
	// A live claim of the message (see [ClaimStore]) is [ErrInProgress]; tx is
	// usable.
	Reserve(ctx context.Context, tx Tx, r Record) (bool, error)
	// Processed reports whether an unexpired record exists, as tx sees it. A
	// claim is none.
	Processed(ctx context.Context, tx Tx, consumer, messageID string, now time.Time) (bool, error)
	// Mark inserts r or overwrites the record that exists.
	Mark(ctx context.Context, tx Tx, r Record) error
	// Purge deletes up to limit records that have expired at now, in its own
	// transaction, and returns how many.
	Purge(ctx context.Context, now time.Time, limit int) (int, error)
}
