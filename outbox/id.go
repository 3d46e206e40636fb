package outbox

import (
	"crypto/rand"

	"github.com/google/uuid"
)

// NewID returns a new UUIDv7, greater than every ID this process has made
// before. It is safe for concurrent use and panics only if the operating
// system has no randomness, as crypto/rand does.
func NewID() ID { return uuid.Must(uuid.NewV7()) }

// NewToken returns a new random fencing token.
func NewToken() (t Token) {
	rand.Read(t[:])
	return t
}
