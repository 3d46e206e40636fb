package outbox

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that callers test for with errors.Is. The text around them names the
// value, the limit and the remedy.
var (
	// ErrInvalidArgument: the call itself is wrong; nothing changed.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrCountUnavailable: the store cannot know its backlog now. Unknown is
	// not zero.
	ErrCountUnavailable = errors.New("pending count unavailable")
	// ErrNotPersistable: the message holds something that no row can hold (a
	// native callback); no row was written.
	ErrNotPersistable = errors.New("message cannot be persisted")
	// ErrDuplicateID: an id is pending already, or stands twice in one call; no
	// row of the call remains and the transaction stays usable.
	ErrDuplicateID = errors.New("duplicate message id")
	// ErrUnknownRoute: no route of that name exists in the store.
	ErrUnknownRoute = errors.New("unknown route")
	// ErrUnknownType: the wire type or the Go type is not registered; nothing
	// was written.
	ErrUnknownType = errors.New("type is not registered")
	// ErrTooLarge: the message is over the configured size; nothing was
	// written.
	ErrTooLarge = errors.New("message too large")
	// ErrTxDone: the transaction handed over has ended already; nothing was
	// written.
	ErrTxDone = errors.New("transaction has already ended")
	// ErrOwnerEnded: the lease window of this owner has ended. It is never
	// reopened: take lanes again under a new owner id.
	ErrOwnerEnded = errors.New("lease owner has ended")
	// ErrRefused: the database understood the statement and refused it (a
	// constraint, a trigger, a missing right). Nothing changed, and the
	// connection is sound.
	ErrRefused = errors.New("refused by the database")
	// ErrSchema: the tables are missing, older or newer than the program.
	ErrSchema = errors.New("outbox schema does not fit this program")
)

// RowError names rows that were found but could not be decoded. The rows that
// could be were returned beside it (R8).
type RowError struct {
	// IDs and Errs are parallel: the rows that could not be decoded, and why.
	IDs  []ID
	Errs []error
}

// Error names every row, up to the first ten.
func (e *RowError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d outbox rows cannot be decoded", len(e.IDs))
	for i, id := range e.IDs {
		if i == 10 {
			fmt.Fprintf(&b, "; and %d more", len(e.IDs)-i)
			break
		}
		fmt.Fprintf(&b, "; %s: %v", id, e.Errs[i])
	}
	return b.String()
}

// Unwrap returns the reasons.
func (e *RowError) Unwrap() []error { return e.Errs }
