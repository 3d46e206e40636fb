package outbox

import (
	"crypto/rand"

	"github.com/google/uuid"
)

// NewID returns a new UUIDv7, greater than every ID this process has made
// before. It is safe for concurrent use and panics only if the operating
// system has no randomness, as crypto/rand does.
func NewID() ID { return uuid.Must(uuid.NewV7()) }

// ParseID reads the canonical form of an ID, 36 characters as ID.String writes
// them, in either case. Every other form (braces, urn:uuid:, no hyphens) and
// every UUID that is not a UUIDv7 of the RFC variant is [ErrInvalidArgument].
func ParseID(s string) (ID, error) {
	if len(s) != 36 {
		return ID{}, invalid("id %.64q has %d characters: use the 36 of a UUIDv7, as in 01890a5d-ac96-774b-bcce-b302099a8057", s, len(s))
	}
	id, err := uuid.Parse(s)
	if err != nil {
		return ID{}, invalid("id %q is not a UUID: use hexadecimal digits with hyphens, as in 01890a5d-ac96-774b-bcce-b302099a8057", s)
	}
	if !isV7(id) {
		return ID{}, invalid("id %q has version %d and variant %s: use a UUIDv7, as outbox.NewID makes", s, id.Version(), id.Variant())
	}
	return id, nil
}

func isV7(id ID) bool { return id.Version() == 7 && id.Variant() == uuid.RFC4122 }

// NewToken returns a new random fencing token.
func NewToken() (t Token) {
	rand.Read(t[:])
	return t
}
