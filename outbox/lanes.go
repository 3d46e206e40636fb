package outbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"
)

// Route is a named transport and the lanes its rows lie in. Stored lanes count
// from 1 over all routes: the ordered ones of a route first, then its
// unordered ones. The counts are fixed when the route is created.
type Route struct {
	Name      string // at most MaxName bytes
	First     Lane   // its first lane; assigned by the store
	Ordered   int    // lanes for rows with an ordering key; 1 to 1024, Defaults to 16
	Unordered int    // lanes for rows without one; 1 to 1024, Defaults to 8
}

// Lanes is the number of lanes of the route.
func (r Route) Lanes() int { return r.Ordered + r.Unordered }

// LaneOf is the stored lane of a row of route r: for a keyed row its first lane
// plus [KeyLane] of the key, for an unkeyed one a lane of the unordered range,
// spread by id. Any language can compute it.
func LaneOf(r Route, id ID, key []byte) Lane {
	if key != nil {
		return r.First + Lane(KeyLane(key, r.Ordered))
	}
	return r.First + Lane(r.Ordered) + Lane(KeyLane(id[:], r.Unordered))
}

// KeyLane is the first 4 bytes of SHA-256(key), big endian, unsigned, modulo
// count; 0 if count is below 1.
func KeyLane(key []byte, count int) int {
	h := sha256.Sum256(key)
	return int(binary.BigEndian.Uint32(h[:4]) % uint32(max(count, 1)))
}

// KeyHash is the first 8 bytes of SHA-256(key), big endian, as a signed number:
// the value of the key_hash column. Equal hashes are compared by key as well.
func KeyHash(key []byte) int64 {
	h := sha256.Sum256(key)
	return int64(binary.BigEndian.Uint64(h[:8]))
}

// LaneStore is the capability that everything beyond the bare contract rests
// on: lanes owned by lease and read without claims. A relay takes lanes,
// reads them by position, sends, and settles under its epoch.
//
// Implementations allow concurrent calls and return memory that the caller
// owns. Times are the server's. All methods wrap database errors.
type LaneStore interface {
	// AcquireLanes renews the owner's window, gives back r.Release, then
	// acquires up to r.Want free or expired lanes of r.Routes, never beyond the
	// fair share ceil(lanes / live relays) of a route. Every acquisition raises
	// the lane's epoch. Renewing never shortens. The grant lists every lane
	// held after the call.
	//
	// [ErrOwnerEnded]: the owner's window expired or was ended, by itself or
	// by a relay that took a lane over; nothing changed. It is never reopened.
	// After any other error the call may have committed.
	AcquireLanes(ctx context.Context, r LaneRequest) (LaneGrant, error)

	// ReadLanes fills dst with hot rows by ascending position, grouped by read
	// in the order of reads, and returns how many it wrote. Each read (each
	// key, where Keys is set: it counts as a read) gets at most
	// [LaneLimit](len(dst), number of reads) rows; a read that returned fewer
	// has reached its end. Parked keys are the caller's business. The rows are
	// of one snapshot. Rows that wait for a retry and rows under a claim are
	// returned too: they block their key.
	//
	// [ErrInvalidArgument]: fewer slots than reads, or a lane that does not
	// exist. No reads return nothing.
	ReadLanes(ctx context.Context, reads []LaneRead, dst []LaneRow) (n int, err error)

	// SweepLanes is ReadLanes without the messages: it tells which rows lie in
	// the ranges, waiting and claimed ones included, so that an owner finds the
	// few that it does not hold at a fraction of the cost, and knows how large
	// rows are before it reads them. Grouping, order, limit and errors are those
	// of ReadLanes; Keys are not allowed.
	SweepLanes(ctx context.Context, reads []LaneRead, dst []LaneSpot) (n int, err error)

	// SettleLanes writes outcomes, all in one transaction, and returns a
	// result per settlement. An accepted row is deleted without a fence: it is
	// out. Everything else, and TriedTo, happens only where (lane, owner,
	// epoch) still holds the lane. After an error nothing or everything may
	// have committed; repeating the request is harmless. A store that can tell
	// says [ErrRefused] when a row of the request is at fault, so that the
	// others need not wait for it.
	//
	// A row that was moved aside while its message was in flight, because its
	// key was parked, is found and settled where it lies; unless its outcome
	// ends it there, it stays aside. A dead letter replaces an earlier one of
	// the same id, which a producer may use again once its row is dead.
	//
	// [ErrInvalidArgument], and nothing changed: a zero owner or id, an unknown
	// outcome, no reason, or flags that the outcome does not allow.
	SettleLanes(ctx context.Context, r SettleRequest) ([]SettleResult, error)

	// PromoteLanes moves up to len(dst) deferred rows that are due by the
	// server's clock into the hot range, under new positions, and fills dst
	// with them. Rows under a live claim stay. nextDue is when the next one
	// falls due, zero if none is deferred. Lanes whose lease does not hold are
	// left alone. A row whose id is in the hot range already is dropped from
	// the deferred ones and comes back with Err set.
	PromoteLanes(ctx context.Context, leases []LaneLease, dst []LaneRow) (n int, nextDue time.Time, err error)
}

// LaneRequest is one renewal of a relay.
//
// A lane of Release whose lease is Unclean is found unclean by its next owner as
// well: its rows may still be there that a dead owner had in hand. With End, too:
// the lanes that Release does not name are given back cleanly.
type LaneRequest struct {
	Owner   ID            // one per window; a window that ended needs a new one
	Routes  []string      // routes the relay serves
	Want    int           // lanes to acquire at most, beside those held; 0 renews only
	Release []LaneLease   // drained lanes to give back: free at once
	End     bool          // clean stop: give back every lane and end the owner
	TTL     time.Duration // length of the window; at least 1 s
}

// LaneGrant is what a renewal returned.
type LaneGrant struct {
	Now    time.Time   // the server's clock
	Leases []LaneLease // every lane held
	Shares []LaneShare // one per route asked for
}

// LaneShare tells how a route is shared.
type LaneShare struct {
	Route  string
	Lanes  int // lanes of the route
	Relays int // live relays that serve it, the caller included
}

// Fair is how many lanes of the route a relay may keep: ceil(Lanes / Relays).
func (s LaneShare) Fair() int {
	relays := max(s.Relays, 1)
	return (s.Lanes + relays - 1) / relays
}

// LaneLease is the right to send a lane's rows.
type LaneLease struct {
	Lane      Lane
	Route     string
	Owner     ID
	Epoch     int64         // rises with every acquisition
	ExpiresIn time.Duration // from the moment the call was made
	Config    int64         // raised by operator commands (park, replay)
	TriedTo   int64         // highest position a sender may have seen
	Unclean   bool          // taken from an owner that expired, or given back so; said again at every renewal
	Dead      bool          // the lane has dead letters with a key, at the time of the grant
}

// LaneRead is one range of one lane.
type LaneRead struct {
	Lane  Lane
	After int64    // exclusive
	UpTo  int64    // inclusive; 0 = no bound
	Keys  [][]byte // if set: only the rows of these keys
	// Seen names keys of which the caller knows every undelivered row up to a
	// position, by rising hash, each hash once: LaneRow.KeyPrev leaves those rows
	// out. It spares the store the entries of what was delivered, which stay as
	// long as an old snapshot is open. Nothing is said of the same key in another
	// lane; reads of one lane in a call name the same. A store may disregard it;
	// it keeps no reference.
	Seen []SeenKey
}

// SeenKey is how far a key is known. It stands for every key with that hash: who
// names one watches for another.
type SeenKey struct {
	Hash int64 // [KeyHash] of the key
	Pos  int64 // inclusive
}

// SeenUpTo is the position that Seen has for a hash, 0 if it does not name it.
func (rd *LaneRead) SeenUpTo(hash int64) int64 {
	i, ok := slices.BinarySearchFunc(rd.Seen, hash, func(s SeenKey, h int64) int { return cmp.Compare(s.Hash, h) })
	if !ok {
		return 0
	}
	return rd.Seen[i].Pos
}

// LaneRow is one hot row as the owner of its lane sees it.
type LaneRow struct {
	Lane    Lane      // the stored lane; Record.Lane is the contract's
	Pos     int64     // position in the lane
	Record  Record    // as far as it could be decoded
	RetryAt time.Time // zero: at once
	KeyHash int64     // [KeyHash] of its key; 0 for a row without one
	// KeyPrev is the largest undelivered position of the row's key at or below
	// the read's After, and above what the read names as Seen, seen in the same
	// statement; 0 = none. A reader that does not hold that row reads the key
	// through Keys before it sends: it committed late.
	KeyPrev int64
	Claimed bool  // under a live claim, or it left while its body was read, which is missing
	Err     error // the row cannot be decoded
	// Hint tells the store where it found the row, if it comes back in the
	// Settlement. It may be out of date. 0 = none.
	Hint uint64
}

// LaneSpot is where a hot row lies.
type LaneSpot struct {
	Lane    Lane
	Pos     int64
	ID      ID
	KeyHash int64 // [KeyHash] of its key; 0 for a row without one
	Size    int   // of its body, in bytes
}

// LaneLimits are the row limits per read that stores use, so that statement
// texts stay constant.
var LaneLimits = [...]int{1, 8, 32, 64, 128, 256, 512, 1024}

// LaneLimit is the largest of [LaneLimits] that gives each of reads its equal
// part of size slots; 0 if there are fewer slots than reads.
func LaneLimit(size, reads int) int {
	if reads <= 0 {
		return 0
	}
	i, ok := slices.BinarySearch(LaneLimits[:], size/reads)
	if !ok {
		i--
	}
	if i < 0 {
		return 0
	}
	return LaneLimits[i]
}

// SettleOutcome is what becomes of a row.
type SettleOutcome uint8

const (
	SettleAccepted SettleOutcome = iota + 1 // delete (or archive): the broker has it
	SettleFailed                            // keep for a retry: a keyed row in place, an unkeyed one deferred
	SettleDead                              // move to dead letters
	SettlePark                              // park its key and move the row aside; a row without a key becomes a dead letter
	SettleCount                             // change the attempts and the last error, clear the retry time, and leave the row in place
)

// SettleRequest is a set of outcomes of one owner.
type SettleRequest struct {
	Owner       ID
	Settlements []Settlement
	TriedTo     []LaneMark // raise the lanes' tried_to, never lower it
}

// LaneMark is a position of a lane under an epoch.
type LaneMark struct {
	Lane  Lane
	Epoch int64
	Pos   int64
}

// Settlement is the outcome of one row.
type Settlement struct {
	Lane     Lane
	Epoch    int64
	Pos      int64
	ID       ID
	Outcome  SettleOutcome
	Attempts int       // the attempts the row had when it was read: makes a repeat harmless
	Attempt  bool      // all but accepted: counts as an attempt
	TakeBack bool      // all but accepted: takes one of its Attempts back, so they are not 0; not together with Attempt
	Reason   string    // all but accepted: required
	RetryAt  time.Time // failed: zero = at once
	// Later, for accepted only, says that the lane has dead letters with keys
	// (LaneLease.Dead, or one that this owner made since): the message is
	// counted in the LaterOut of those of its key that lie before it. Without
	// it they are not looked for, which spares a statement. A repeat counts
	// nothing; a row without a key has nothing to be counted in.
	Later bool
	Hint  uint64 // LaneRow.Hint; 0 = none
	// Config, for park only, is that of the lane as the owner knew it. If an
	// operator has raised it since, a keyed row stays as it is and the result is
	// Gone: were a park whose answer was lost repeated after its key was let go,
	// the operator's command would be undone.
	Config int64
}

// SettleResult is what a settlement did.
type SettleResult uint8

const (
	Settled SettleResult = iota + 1 // done
	Gone                            // no such row any more, or settled before: go on
	Fenced                          // the lane has another epoch: give it up
)

// LaneSessioner is implemented by stores that serve each of the relay's loops
// on a connection of its own.
type LaneSessioner interface {
	// LaneSession pins a connection, prepared for lane statements. purpose
	// ("read", "sweep", "settle", "lease") is shown to database operators
	// where the engine can. Too small a pool is a clear error, not a wait.
	LaneSession(ctx context.Context, purpose string) (LaneSession, error)
}

// LaneSession is a LaneStore over one pinned connection; calls on it come one
// at a time. After an error that is not one of this package's, close it and
// open another.
type LaneSession interface {
	LaneStore
	Close() error
}
