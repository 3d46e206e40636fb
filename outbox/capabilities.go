package outbox

import (
	"context"
	"time"
)

// Concurrent is declared by stores whose methods allow concurrent calls and
// return memory the caller owns. For a store that does not declare it, the
// relay serialises the calls and clones the rows (R7).
type Concurrent interface {
	ConcurrentUse() bool
}

// Releaser gives a claim back without an attempt.
type Releaser interface {
	// ReleaseClaim ends a matching live claim. false: no such live claim,
	// nothing changed.
	ReleaseClaim(ctx context.Context, c Claim, now time.Time) (bool, error)
}

// ServerClock tells the database's time, the one clock of the house.
type ServerClock interface {
	ServerTime(ctx context.Context) (time.Time, error)
}

// Router lists the routes of a store.
type Router interface {
	Routes(ctx context.Context) ([]Route, error)
}

// AgeStore knows how long the backlog has been waiting.
type AgeStore interface {
	// OldestPending is the CreatedAt of the oldest row eligible at now; ok is
	// false when there is none.
	OldestPending(ctx context.Context, now time.Time) (created time.Time, ok bool, err error)
}

// DeadLetter is a message that was given up, never dropped.
type DeadLetter struct {
	Record        Record // Attempts and LastError as they were
	Lane          Lane   // stored lane
	Pos           int64  // position in the lane
	Reason        string
	FirstFailedAt time.Time // zero if it never failed before
	DiedAt        time.Time
}

// DeadQuery selects dead letters, oldest first.
type DeadQuery struct {
	Route       string    // "" = every route
	AfterTime   time.Time // exclusive cursor: DiedAt and ID of the last one seen
	AfterID     ID
	WithoutBody bool // leave Record.Message.Body nil
}

// ReplayResult is what a replay did.
type ReplayResult struct {
	Replayed  int  // back in the hot range
	Conflicts []ID // pending already; left among the dead
	Missing   []ID // not among the dead
}

// DeadLetters is the capability to list, replay and discard dead letters.
// Replay and Discard are idempotent and written to the audit table under by.
type DeadLetters interface {
	// ListDead fills dst in (DiedAt, ID) order and returns how many it wrote.
	// A row that cannot be decoded comes back with what could be, beside a
	// *RowError.
	ListDead(ctx context.Context, q DeadQuery, dst []DeadLetter) (n int, err error)
	// CountDead counts them; route "" means every route.
	CountDead(ctx context.Context, route string) (int64, error)
	// ReplayDead returns them to the hot range under their old id and
	// position with attempts 0.
	ReplayDead(ctx context.Context, by string, ids ...ID) (ReplayResult, error)
	// DiscardDead deletes them for good.
	DiscardDead(ctx context.Context, by string, ids ...ID) (int, error)
}

// ParkedKey is an ordering key whose rows wait for an operator.
type ParkedKey struct {
	Route     string
	Lane      Lane // stored lane; assigned by the store
	Key       []byte
	Unparking bool // its rows are on their way back
	By        string
	At        time.Time
	Why       string
}

// Parker is the operator's side of parking. Both commands are idempotent,
// raise the lane's config version and are written to the audit table.
type Parker interface {
	// ParkKey stops the key: its rows are no longer eligible. false: it was
	// parked already. A send in flight may still finish.
	ParkKey(ctx context.Context, k ParkedKey) (bool, error)
	// UnparkKey asks the lane's owner to bring the key's rows back, in order.
	// false: it is not parked.
	UnparkKey(ctx context.Context, route string, key []byte, by string) (bool, error)
	// ParkedKeys lists the parked keys of the given lanes; nil = every lane.
	ParkedKeys(ctx context.Context, lanes []Lane) ([]ParkedKey, error)
}

// LaneParker is the lane owner's side of parking.
type LaneParker interface {
	// MoveParked moves up to limit rows under the leases: hot rows of parked
	// keys aside, rows of unparking keys back at their old positions. A lane
	// whose config version is not the lease's is left alone: its owner does not
	// know yet that the key is parked, and would send the key's later rows while
	// the earlier ones are out of its sight. A key
	// whose last row is back is lifted and reported in done; the owner reads
	// it afresh. moved == limit means there may be more; when there are none,
	// each lease's Config is recorded as seen.
	MoveParked(ctx context.Context, leases []LaneLease, limit int) (moved int, done []ParkedKey, err error)
}

// Overview is a store at a glance, for people.
type Overview struct {
	Now    time.Time // the server's clock
	Schema int       // version of the tables
	Routes []RouteOverview
	Relays []RelayOverview // not ended and not expired
}

// RouteOverview is the state of one route.
type RouteOverview struct {
	Route
	Pending       int64     // eligible now
	OldestPending time.Time // zero: none
	Deferred      int64     // scheduled, waiting for a retry or parked
	Dead          int64
	ParkedKeys    int64
	Held          int // lanes under a live lease
}

// RelayOverview is one live relay.
type RelayOverview struct {
	Owner     ID
	Lanes     int
	ExpiresIn time.Duration
}

// Inspector gives the overview.
type Inspector interface {
	Inspect(ctx context.Context, now time.Time) (Overview, error)
}
