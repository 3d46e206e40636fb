package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// MemOptions configures a [Mem]. The zero value, and nil, are usable.
type MemOptions struct {
	// Routes of the store; First is assigned. Defaults to one route "default"
	// with 16 ordered and 8 unordered lanes; a count of 0 defaults to the same.
	Routes []outbox.Route
	// Now is the server's clock. It is called with the store locked and must
	// not call the store. Defaults to time.Now, which is the bubble's clock
	// under testing/synctest.
	Now func() time.Time
	// MaxBytes bounds a message's size. Defaults to outbox.DefaultSize.
	MaxBytes int
	// Hooks let a test hold calls at the points where concurrency matters.
	Hooks MemHooks
}

// MemHooks are called without the store's lock and may block, and may use the
// store. op is the method that is running ("ReadLanes", "SettleLanes", ...;
// "Commit" for a producer's transaction). Every hook defaults to none.
type MemHooks struct {
	BeforeRead   func(op string) // the read has not taken its snapshot yet
	AfterRead    func(op string) // the snapshot is taken: from here on the read returns late
	BeforeCommit func(op string) // nothing has happened yet
	AfterCommit  func(op string) // it has happened, the caller does not know yet
}

// Mem is the reference store: what it does is what the contract means. All its
// state is this struct; every read is one snapshot of it, every mutation one
// atomic change. It implements every store capability of package outbox but
// sessions, is safe for concurrent use and returns memory the caller owns.
//
// It keeps open transactions as a database does: positions are drawn when rows
// are enlisted, rows become visible when their transaction commits, in any
// order between transactions.
type Mem struct {
	opts   MemOptions
	routes []outbox.Route

	mu       sync.Mutex
	pos      int64                            // last position drawn
	rows     map[outbox.ID]*row               // hot and deferred, which share no id
	hot      map[outbox.Lane]table            // ready, and keyed rows waiting for a retry
	deferred map[outbox.Lane]table            // scheduled, parked, and unkeyed rows waiting for a retry
	dead     map[outbox.ID]*outbox.DeadLetter // given up
	corrupt  map[outbox.ID]error              // rows that a test made undecodable
	parked   map[parkedID]*outbox.ParkedKey   // the truth about parking
	lanes    map[outbox.Lane]*lane            // who owns a lane: what the fence reads
	relays   map[outbox.ID]*window            // one lease window per owner
	locks    map[any]*MemTx                   // row locks of open transactions
	audit    []AuditEntry                     // what operators did
}

// row is a message that is neither delivered nor dead.
type row struct {
	rec      outbox.Record // Lane, Attempts and LastError included
	lane     outbox.Lane   // stored lane, of unkeyed rows too
	pos      int64
	retryAt  time.Time
	failedAt time.Time // the first failure
	deferred bool      // lies in Mem.deferred, else in Mem.hot
	aside    bool      // deferred because its key is parked: never due
	token    outbox.Token
	claimed  time.Time // the claim's expiry
}

func (r *row) keyed() bool { return r.rec.Message.Key != nil }

// due is when a deferred row may go. DeliverAt and the retry time are two
// things and the later one counts.
func (r *row) due() time.Time {
	if r.retryAt.After(r.rec.Message.DeliverAt) {
		return r.retryAt
	}
	return r.rec.Message.DeliverAt
}

// claimLive: a claim whose expiry equals now has expired (R4).
func (r *row) claimLive(now time.Time) bool { return r.claimed.After(now) }

// table holds one lane's rows by ascending position.
type table []*row

func byPos(r *row, pos int64) int {
	switch {
	case r.pos < pos:
		return -1
	case r.pos > pos:
		return 1
	}
	return 0
}

// above returns the rows with a position over pos.
func (t table) above(pos int64) table {
	i, _ := slices.BinarySearchFunc(t, pos+1, byPos)
	return t[i:]
}

// NewMem returns an empty store. As the options are constants of a test, it
// panics if they are invalid.
func NewMem(opts *MemOptions) *Mem {
	m := &Mem{
		rows:     map[outbox.ID]*row{},
		hot:      map[outbox.Lane]table{},
		deferred: map[outbox.Lane]table{},
		dead:     map[outbox.ID]*outbox.DeadLetter{},
		corrupt:  map[outbox.ID]error{},
		parked:   map[parkedID]*outbox.ParkedKey{},
		lanes:    map[outbox.Lane]*lane{},
		relays:   map[outbox.ID]*window{},
		locks:    map[any]*MemTx{},
	}
	if opts != nil {
		m.opts = *opts
	}
	if m.opts.Now == nil {
		m.opts.Now = time.Now
	}
	m.routes = slices.Clone(m.opts.Routes)
	if len(m.routes) == 0 {
		m.routes = []outbox.Route{{Name: "default"}}
	}
	first := outbox.Lane(1)
	for i := range m.routes {
		r := &m.routes[i]
		if r.Ordered == 0 {
			r.Ordered = 16
		}
		if r.Unordered == 0 {
			r.Unordered = 8
		}
		if r.Name == "" || r.Ordered < 1 || r.Ordered > 1024 || r.Unordered < 1 || r.Unordered > 1024 {
			panic(fmt.Sprintf("storetest: route %q has %d+%d lanes: a route has a name and 1 to 1024 lanes of each kind", r.Name, r.Ordered, r.Unordered))
		}
		r.First = first
		for range r.Lanes() {
			m.lanes[first] = &lane{route: r.Name}
			first++
		}
	}
	return m
}

// now is the server's clock as a database keeps it: microseconds, UTC.
func (m *Mem) now() time.Time { return m.opts.Now().UTC().Truncate(time.Microsecond) }

// read runs fn on one snapshot, which may be old by the time the caller sees
// it.
func (m *Mem) read(ctx context.Context, op string, fn func() error) error {
	return m.do(ctx, op, m.opts.Hooks.BeforeRead, m.opts.Hooks.AfterRead, fn)
}

// write runs fn as one transaction. fn changes nothing when it returns an
// error.
func (m *Mem) write(ctx context.Context, op string, fn func() error) error {
	return m.do(ctx, op, m.opts.Hooks.BeforeCommit, m.opts.Hooks.AfterCommit, fn)
}

func (m *Mem) do(ctx context.Context, op string, before, after func(string), fn func() error) error {
	if before != nil {
		before(op)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storetest: %s: %w", op, err)
	}
	m.mu.Lock()
	err := fn()
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("storetest: %s: %w", op, err)
	}
	if after != nil {
		after(op)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outbox.ErrInvalidArgument}, args...)...)
}

// put adds r to the hot or the deferred range, under its position.
func (m *Mem) put(r *row, deferred bool) {
	t := m.place(deferred)
	i, _ := slices.BinarySearchFunc(t[r.lane], r.pos, byPos)
	t[r.lane] = slices.Insert(t[r.lane], i, r)
	r.deferred = deferred
	m.rows[r.rec.ID] = r
}

// take removes r from where it lies.
func (m *Mem) take(r *row) {
	t := m.place(r.deferred)
	if i, ok := slices.BinarySearchFunc(t[r.lane], r.pos, byPos); ok {
		t[r.lane] = slices.Delete(t[r.lane], i, i+1)
	}
	delete(m.rows, r.rec.ID)
}

func (m *Mem) place(deferred bool) map[outbox.Lane]table {
	if deferred {
		return m.deferred
	}
	return m.hot
}

// move takes r elsewhere under the position it has.
func (m *Mem) move(r *row, deferred bool) {
	m.take(r)
	m.put(r, deferred)
}

func (m *Mem) route(name string) (outbox.Route, error) {
	for _, r := range m.routes {
		if r.Name == name {
			return r, nil
		}
	}
	return outbox.Route{}, fmt.Errorf("%w %q: the store has %v", outbox.ErrUnknownRoute, name, m.routes)
}

// decode returns a copy of the row's record, as far as it can be decoded.
func (m *Mem) decode(r *row) (outbox.Record, error) {
	if err := m.corrupt[r.rec.ID]; err != nil {
		return outbox.Record{ID: r.rec.ID, Lane: r.rec.Lane, Message: outbox.Message{Key: slices.Clone(r.rec.Message.Key)}}, err
	}
	rec := r.rec
	rec.Message = r.rec.Message.Clone()
	return rec, nil
}

// MemTx is an open transaction of a [Mem]. Its rows are invisible until Commit.
// A MemTx is used by one goroutine at a time.
type MemTx struct {
	mem  *Mem
	rows []*row
	held []any
	done chan struct{} // closed when the transaction has ended
}

// Begin opens a transaction.
func (m *Mem) Begin() *MemTx { return &MemTx{mem: m, done: make(chan struct{})} }

// Commit makes the rows visible and lets the locks go. An ended transaction is
// outbox.ErrTxDone.
func (tx *MemTx) Commit() error {
	return tx.mem.write(context.Background(), "Commit", func() error {
		if tx.ended() {
			return outbox.ErrTxDone
		}
		for _, r := range tx.rows {
			tx.mem.put(r, !r.rec.Message.DeliverAt.IsZero())
		}
		tx.end()
		return nil
	})
}

// Rollback leaves nothing behind but a gap in the positions. An ended
// transaction is outbox.ErrTxDone.
func (tx *MemTx) Rollback() error {
	tx.mem.mu.Lock()
	defer tx.mem.mu.Unlock()
	if tx.ended() {
		return fmt.Errorf("storetest: Rollback: %w", outbox.ErrTxDone)
	}
	tx.end()
	return nil
}

// Lock takes the row lock named key, as SELECT ... FOR UPDATE of a business row
// would, and holds it until the transaction ends. It waits for the transaction
// that has it, or for ctx; deadlocks are not detected.
func (tx *MemTx) Lock(ctx context.Context, key string) error {
	_, err := tx.lock(ctx, key)
	return err
}

// lock reports whether the lock is new to tx.
func (tx *MemTx) lock(ctx context.Context, key any) (bool, error) {
	m := tx.mem
	for {
		m.mu.Lock()
		holder := m.locks[key]
		if tx.ended() {
			m.mu.Unlock()
			return false, fmt.Errorf("storetest: lock %v: %w", key, outbox.ErrTxDone)
		}
		if holder == nil {
			m.locks[key] = tx
			tx.held = append(tx.held, key)
		}
		m.mu.Unlock()
		if holder == nil || holder == tx {
			return holder == nil, nil
		}
		select {
		case <-holder.done:
		case <-ctx.Done():
			return false, fmt.Errorf("storetest: lock %v: %w", key, ctx.Err())
		}
	}
}

func (tx *MemTx) unlock(key any) {
	delete(tx.mem.locks, key)
	tx.held = slices.DeleteFunc(tx.held, func(k any) bool { return k == key })
}

func (tx *MemTx) ended() bool {
	select {
	case <-tx.done:
		return true
	default:
		return false
	}
}

// end runs after the rows have become visible: who waited for a lock sees them.
func (tx *MemTx) end() {
	for _, key := range tx.held {
		delete(tx.mem.locks, key)
	}
	tx.rows, tx.held = nil, nil
	close(tx.done)
}

var _ outbox.Enlister[*MemTx] = (*Mem)(nil)

// Enlist implements [outbox.Enlister]. Ids are unique among all rows that are
// pending and in all routes; a concurrent transaction that has enlisted the
// same id is waited for.
func (m *Mem) Enlist(ctx context.Context, tx *MemTx, recs ...outbox.Record) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storetest: Enlist: %w", err)
	}
	if tx == nil || tx.mem != m {
		return fmt.Errorf("storetest: Enlist: %w", invalid("%v is no transaction of this store: use Begin", tx))
	}
	if tx.ended() {
		return fmt.Errorf("storetest: Enlist: %w", outbox.ErrTxDone)
	}
	rows := make([]*row, len(recs))
	for i, rec := range recs {
		if err := rec.Normalize(m.opts.MaxBytes); err != nil {
			return fmt.Errorf("storetest: Enlist: record %d: %w", i, err)
		}
		route, err := m.route(rec.Transport)
		if err != nil {
			return fmt.Errorf("storetest: Enlist: record %d: %w", i, err)
		}
		rec.Message = rec.Message.Clone()
		r := &row{rec: rec, lane: outbox.LaneOf(route, rec.ID, rec.Message.Key)}
		if r.keyed() {
			r.rec.Lane = r.lane
		}
		rows[i] = r
	}
	// An id is locked like a row of a unique index: the second of two open
	// transactions waits and then finds the row, or not.
	var reserved []any
	err := func() error {
		for _, r := range rows {
			fresh, err := tx.lock(ctx, r.rec.ID)
			if err != nil {
				return err
			}
			if !fresh {
				return fmt.Errorf("%w: %s stands twice in one transaction", outbox.ErrDuplicateID, r.rec.ID)
			}
			reserved = append(reserved, r.rec.ID)
		}
		return nil
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := 0; err == nil && i < len(rows); i++ {
		if m.rows[rows[i].rec.ID] != nil {
			err = fmt.Errorf("%w: %s is pending already", outbox.ErrDuplicateID, rows[i].rec.ID)
		}
	}
	if err != nil {
		for _, id := range reserved {
			tx.unlock(id)
		}
		return fmt.Errorf("storetest: Enlist: %w", err)
	}
	for _, r := range rows {
		m.pos++
		r.pos = m.pos
	}
	tx.rows = append(tx.rows, rows...)
	return nil
}

// Corrupt makes the pending or dead row undecodable for the reason err; nil
// mends it. It is how tests reach R8.
func (m *Mem) Corrupt(id outbox.ID, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.corrupt, id)
		return
	}
	m.corrupt[id] = err
}

// Place tells where a row lies: "hot", "deferred", "parked" (moved aside),
// "dead", or "" when it is delivered, discarded or not committed.
func (m *Mem) Place(id outbox.ID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[id]
	switch {
	case r == nil && m.dead[id] != nil:
		return "dead"
	case r == nil:
		return ""
	case r.aside:
		return "parked"
	case r.deferred:
		return "deferred"
	}
	return "hot"
}
