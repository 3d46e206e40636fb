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

// CommitOrder is declared by stores with one writer at a time: transactions
// commit in the order in which they drew their positions, so that no row shows
// itself below one that was read, but for those that operators bring back. A
// relay then looks below its cursors seldom.
type CommitOrder interface {
	CommitsInOrder() bool
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

// DeadLetter is a message that was given up, never dropped. There is one per
// id: a message that dies under an id that is among the dead replaces it.
type DeadLetter struct {
	Record        Record // Attempts and LastError as they were
	Lane          Lane   // stored lane
	Pos           int64  // position in the lane
	Reason        string
	FirstFailedAt time.Time // zero if it never failed before
	DiedAt        time.Time
	// LaterOut counts the later messages of its key that relays have delivered
	// since it died: replayed, it goes out after them. 0 without a key.
	// Messages completed under a claim are not counted, and a letter that was
	// replayed and dies again starts from 0. A store may stop counting once 1,024
	// more of the key have died behind it: then there are more.
	LaterOut int64
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
	Replayed  int   // back in the hot range
	LaterOut  int64 // messages out already behind the first one replayed of each key: what those can no longer precede
	Conflicts []ID  // pending already; left among the dead
	Missing   []ID  // not among the dead
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
	// position with attempts 0, and raises the config version of their lanes:
	// the owner has to look below its cursor.
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
// raise the lane's config version and are written to the audit table. The lane
// they are about is [LaneOf] of the route, as [Router] tells it, and the key
// (the id does not matter): hand it to [Confirmer] to learn when the lane's
// owner knows.
type Parker interface {
	// ParkKey stops the key: its rows are no longer eligible. false: it was
	// parked already. A key on its way back is parked again. A send in flight
	// may still finish: see [Confirmer].
	ParkKey(ctx context.Context, k ParkedKey) (bool, error)
	// UnparkKey asks the lane's owner to bring the key's rows back, in order.
	// false: it is not parked, or on its way back already.
	UnparkKey(ctx context.Context, route string, key []byte, by string) (bool, error)
	// ParkedKeys lists the parked keys of the given lanes; nil = every lane.
	ParkedKeys(ctx context.Context, lanes []Lane) ([]ParkedKey, error)
}

// LaneParker is the lane owner's side of parking.
type LaneParker interface {
	// MoveParked moves up to limit rows under the leases: hot rows of parked
	// keys aside, rows of unparking keys back at their old positions. A lane
	// whose config version is not the lease's is left alone, and nothing is
	// recorded for it: its owner does not know yet that the key is parked, and
	// would send the key's later rows while the earlier ones are out of its
	// sight. It renews its lease first. A key whose last row is back is lifted
	// and reported in done; the owner reads it afresh. moved == limit means
	// there may be more; when there are none, each lease's Config is recorded
	// as seen.
	MoveParked(ctx context.Context, leases []LaneLease, limit int) (moved int, done []ParkedKey, err error)
}

// Confirmer tells operators when a command has reached those who send.
type Confirmer interface {
	// Confirmed reports, in one snapshot, whether every one of the lanes has an
	// owner that has recorded the lane's present config version as seen, or no
	// owner whose lease is live by the server's clock: whoever acquires such a
	// lane is told the version with it. true for no lanes.
	//
	// After ParkKey, true means that whoever may send the lane's rows knows
	// that the key is parked. It does not stay true: the next command raises
	// the version again, and a new owner has to record it.
	//
	// [ErrInvalidArgument]: a lane does not exist.
	Confirmed(ctx context.Context, lanes []Lane) (bool, error)
}

// Overview is a store at a glance, for people.
type Overview struct {
	Now    time.Time // the server's clock
	Schema int       // version of the tables
	Routes []RouteOverview
	Relays []RelayOverview // not ended and not expired
	// Stray counts the eligible and deferred rows in lanes of no route, which no relay
	// reads: a producer computed their lane wrongly.
	Stray int64
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
