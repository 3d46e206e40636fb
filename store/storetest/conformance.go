package storetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

// Harness is what a store's author gives to [Run] and [Model]. Tx is the
// native transaction type that the store enlists in.
type Harness[Tx any] struct {
	// New returns a store over empty tables of its own, and removes both at
	// tb.Cleanup. It is called once per subtest, from parallel tests. Required.
	New func(tb testing.TB) Instance[Tx]
	// Route is a route that every new store has. Defaults to "default".
	Route string
	// NilBodyIsEmpty declares that the engine cannot keep a nil and a
	// zero-length body apart, which the store's docs say as well (S3).
	NilBodyIsEmpty bool
	// SingleWriter declares that the engine has one writer at a time, so that
	// two open write transactions cannot exist: positions are in commit order,
	// late commits do not occur and LaneRow.KeyPrev may always be 0.
	SingleWriter bool
	// Sequential runs the subtests one after another. Defaults to parallel.
	Sequential bool
}

// Instance is one store under test. Fields are required unless their comment
// says otherwise.
type Instance[Tx any] struct {
	Store    outbox.Store
	Enlister outbox.Enlister[Tx]
	// Begin, Commit and Rollback are the native library's.
	Begin    func(ctx context.Context) (Tx, error)
	Commit   func(ctx context.Context, tx Tx) error
	Rollback func(ctx context.Context, tx Tx) error
	// Corrupt makes a committed row undecodable, as a bad writer would: for
	// example by overwriting its encoded headers. It serves R8.
	Corrupt func(ctx context.Context, id outbox.ID) error
	// Open returns another store over the same tables, as a second process
	// would have it, closed at tb.Cleanup. timeZone is an IANA name for the
	// database session, "" for the usual one; an engine without session zones
	// ignores it. Optional: without it the one instance is used.
	Open func(tb testing.TB, timeZone string) outbox.Store
	// NotTx are values that could commit alone: a pool, a *sql.DB, a single
	// connection (E9). A value that the compiler already refuses as Tx passes.
	// Optional; the zero Tx is always tried.
	NotTx []any
	// Migrate creates or upgrades the store's tables (D1). Optional.
	Migrate func(ctx context.Context) error
	// Lost tells whether an error of Enlist means that the engine ended the
	// transaction for another one's sake, as engines may where an id is enlisted
	// concurrently and the isolation is strict. Nil: none does.
	Lost func(error) bool
	// Sleep lets the server's clock go on by d. Defaults to time.Sleep.
	Sleep func(d time.Duration)
}

// rule is one subtest.
type rule struct {
	name  string
	needs need
	run   func(e *env)
}

// need names the capability whose absence excuses a store from the rule.
type need uint8

const (
	always need = iota
	needLanes
	needDead       // lanes and dead letters
	needParker     // lanes and the operator's side of parking
	needMover      // needParker and the owner's side
	needConfirm    // needMover and what operators learn of it
	needRelease    // release of claims
	needClock      // server clock
	needRouter     // list of routes
	needAge        // oldest pending
	needInspect    // overview
	needSession    // lane sessions
	needMigrate    // Instance.Migrate
	needManyWriter // lanes, and several write transactions at once
)

// absent says why the store is excused, "" if it is not.
func (n need) absent(e *env) string {
	lanes := e.lanes() == nil
	why := func(missing bool, name string) string {
		if missing {
			return "the store does not implement outbox." + name
		}
		return ""
	}
	_, dead := e.store.(outbox.DeadLetters)
	_, parker := e.store.(outbox.Parker)
	_, mover := e.store.(outbox.LaneParker)
	var ok bool
	switch n {
	case needLanes:
		return why(lanes, "LaneStore")
	case needDead:
		return why(lanes || !dead, "LaneStore and DeadLetters")
	case needParker:
		return why(lanes || !parker, "LaneStore and Parker")
	case needMover:
		return why(lanes || !parker || !mover, "LaneStore, Parker and LaneParker")
	case needConfirm:
		_, ok = e.store.(outbox.Confirmer)
		return why(lanes || !parker || !mover || !ok, "LaneStore, Parker, LaneParker and Confirmer")
	case needRelease:
		_, ok = e.store.(outbox.Releaser)
		return why(!ok, "Releaser")
	case needClock:
		_, ok = e.store.(outbox.ServerClock)
		return why(!ok, "ServerClock")
	case needRouter:
		_, ok = e.store.(outbox.Router)
		return why(!ok, "Router")
	case needAge:
		_, ok = e.store.(outbox.AgeStore)
		return why(!ok, "AgeStore")
	case needInspect:
		_, ok = e.store.(outbox.Inspector)
		return why(!ok || lanes, "LaneStore and Inspector")
	case needSession:
		_, ok = e.store.(outbox.LaneSessioner)
		return why(!ok, "LaneSessioner")
	case needMigrate:
		if e.fix.migrate == nil {
			return "the harness has no Migrate"
		}
	case needManyWriter:
		if e.fix.singleWriter {
			return "the engine has a single writer: two write transactions cannot be open at once"
		}
		return why(lanes, "LaneStore")
	}
	return ""
}

// allRules in the order in which they run.
var allRules = slices.Concat(recordRules, enlistRules, readRules, claimRules, countRules, leaseRules, laneReadRules, settleRules, attemptRules, operatorRules, configRules, laterRules)

// Rules names the subtests that [Run] knows, in order. A name begins with the
// rule of the contract that it proves: S1 to S7, E1 to E9 without E7 (the unit
// of work's, above the store), R1 to R8, C1 to C11, B1 to B3, D1, P2 (leases
// and settling), P3 (order), P4 (poison) and P9 (overview).
func Rules() []string {
	names := make([]string, len(allRules))
	for i, r := range allRules {
		names[i] = r.name
	}
	return names
}

// Run is the conformance suite: one subtest per rule. A rule is absent only
// when the store lacks the optional capability that it is about; what ran and
// what was absent, and why, is logged at the end.
func Run[Tx any](t *testing.T, h Harness[Tx]) {
	t.Helper()
	probe := newEnv(t, h.fixture(t))
	var mu sync.Mutex
	var ran, failed, absent []string
	t.Cleanup(func() {
		slices.Sort(ran)
		slices.Sort(failed)
		t.Logf("%d rules run: %s", len(ran), strings.Join(ran, " "))
		for _, a := range absent {
			t.Logf("absent: %s", a)
		}
		for _, f := range failed {
			t.Logf("FAILED: %s", f)
		}
	})
	for _, r := range allRules {
		if why := r.needs.absent(probe); why != "" {
			absent = append(absent, r.name+": "+why)
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			if !h.Sequential {
				t.Parallel()
			}
			t.Cleanup(func() {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, r.name)
				if t.Failed() {
					failed = append(failed, r.name)
				}
			})
			r.run(newEnv(t, h.fixture(t)))
		})
	}
}

// fixture is an Instance without its type parameter.
type fixture struct {
	store          outbox.Store
	begin          func(ctx context.Context) (*txn, error)
	corrupt        func(ctx context.Context, id outbox.ID) error
	open           func(tb testing.TB, timeZone string) outbox.Store
	notTx          func(ctx context.Context, rec outbox.Record) error
	migrate        func(ctx context.Context) error
	lost           func(error) bool
	sleep          func(d time.Duration)
	route          string
	nilBodyIsEmpty bool
	singleWriter   bool
}

type txn struct {
	enlist           func(ctx context.Context, recs ...outbox.Record) error
	commit, rollback func() error
}

func (h Harness[Tx]) fixture(tb testing.TB) *fixture {
	tb.Helper()
	if h.New == nil {
		tb.Fatal("storetest: Harness.New is required")
	}
	in := h.New(tb)
	for name, missing := range map[string]bool{
		"Store": in.Store == nil, "Enlister": in.Enlister == nil, "Begin": in.Begin == nil,
		"Commit": in.Commit == nil, "Rollback": in.Rollback == nil, "Corrupt": in.Corrupt == nil,
	} {
		if missing {
			tb.Fatalf("storetest: Instance.%s is required", name)
		}
	}
	f := &fixture{
		store: in.Store, corrupt: in.Corrupt, open: in.Open, migrate: in.Migrate, lost: in.Lost, sleep: in.Sleep,
		route: h.Route, nilBodyIsEmpty: h.NilBodyIsEmpty, singleWriter: h.SingleWriter,
	}
	if f.route == "" {
		f.route = "default"
	}
	if f.sleep == nil {
		f.sleep = time.Sleep
	}
	f.begin = func(ctx context.Context) (*txn, error) {
		tx, err := in.Begin(ctx)
		if err != nil {
			return nil, err
		}
		return &txn{
			enlist: func(ctx context.Context, recs ...outbox.Record) error {
				return in.Enlister.Enlist(ctx, tx, recs...)
			},
			commit:   func() error { return in.Commit(context.WithoutCancel(ctx), tx) },
			rollback: func() error { return in.Rollback(context.WithoutCancel(ctx), tx) },
		}, nil
	}
	f.notTx = func(ctx context.Context, rec outbox.Record) error {
		var zero Tx
		for _, v := range append([]any{zero}, in.NotTx...) {
			tx, fits := v.(Tx)
			if v != nil && !fits {
				continue // the compiler refuses it
			}
			if err := in.Enlister.Enlist(ctx, tx, rec); err == nil {
				return fmt.Errorf("Enlist took %T(%v), which is no transaction", v, v)
			}
		}
		return nil
	}
	return f
}

// env is one subtest's store and the verbs that rules are written in.
type env struct {
	testing.TB
	ctx   context.Context
	fix   *fixture
	store outbox.Store
	now   time.Time // the "now" of contract calls: the server's, as it was at the start
}

func newEnv(tb testing.TB, f *fixture) *env {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	tb.Cleanup(cancel)
	e := &env{TB: tb, ctx: ctx, fix: f, store: f.store, now: time.Now()}
	if c, ok := f.store.(outbox.ServerClock); ok {
		now, err := c.ServerTime(ctx)
		e.ok(err)
		e.now = now
	}
	e.now = e.now.UTC().Truncate(time.Microsecond)
	return e
}

// ok stops the rule at an unexpected error.
func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("unexpected error: %v", err)
	}
}

// equal compares plain values.
func (e *env) equal(what string, got, want any) {
	e.Helper()
	if !reflect.DeepEqual(got, want) {
		e.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// yes and no check the answer of a claim operation.
func (e *env) yes(what string, got bool, err error) {
	e.Helper()
	if err != nil || !got {
		e.Fatalf("%s: got %v, %v; want true", what, got, err)
	}
}

func (e *env) no(what string, got bool, err error) {
	e.Helper()
	if err != nil || got {
		e.Fatalf("%s: got %v, %v; want false without an error", what, got, err)
	}
}

// rec returns a new record; key "" means unordered.
func (e *env) rec(key string) outbox.Record {
	r := outbox.Record{
		ID: outbox.NewID(), Transport: e.fix.route, Type: "shop.order.placed.v1", CreatedAt: e.now.Add(-time.Hour),
		Message: outbox.Message{Destination: "orders", Body: []byte("body"), Event: outbox.Event{Source: "/shop"}},
	}
	if key != "" {
		r.Message.Key = []byte(key)
	}
	return r
}

// at is rec with a delivery time.
func (e *env) at(key string, deliver time.Time) outbox.Record {
	r := e.rec(key)
	r.Message.DeliverAt = deliver
	return r
}

func (e *env) begin() *txn {
	e.Helper()
	tx, err := e.fix.begin(e.ctx)
	e.ok(err)
	// A rule that stops early must not leave locks to whoever drops the tables.
	e.Cleanup(func() { _ = tx.rollback() })
	return tx
}

// enlist commits the records in one transaction.
func (e *env) enlist(recs ...outbox.Record) {
	e.Helper()
	tx := e.begin()
	if err := tx.enlist(e.ctx, recs...); err != nil {
		_ = tx.rollback()
		e.Fatalf("Enlist: %v", err)
	}
	e.ok(tx.commit())
}

// put enlists one new record and returns it.
func (e *env) put(key string) outbox.Record {
	e.Helper()
	r := e.rec(key)
	e.enlist(r)
	return r
}

// orderedLanes lists the lanes that a contract reader has to visit.
func (e *env) orderedLanes() (lanes []outbox.Lane) {
	e.Helper()
	r, ok := e.store.(outbox.Router)
	if !ok {
		for n := outbox.Lane(1); n <= 64; n++ {
			lanes = append(lanes, n)
		}
		return lanes
	}
	routes, err := r.Routes(e.ctx)
	e.ok(err)
	for _, route := range routes {
		for i := range route.Ordered {
			lanes = append(lanes, route.First+outbox.Lane(i))
		}
	}
	return lanes
}

// read pages through one lane.
func (e *env) read(lane outbox.Lane, now time.Time) (recs []outbox.Record) {
	e.Helper()
	req := outbox.ReadRequest{Lane: lane, Now: now}
	for {
		dst := make([]outbox.Record, 100)
		n, err := e.store.ReadPending(e.ctx, req, dst)
		e.ok(err)
		for _, r := range dst[:n] {
			r.Message = r.Message.Clone()
			recs = append(recs, r)
		}
		if n < len(dst) {
			return recs
		}
		req.After = dst[n-1].ID
	}
}

// pending reads every lane.
func (e *env) pending(now time.Time) (recs []outbox.Record) {
	e.Helper()
	for _, lane := range append(e.orderedLanes(), outbox.Unordered) {
		recs = append(recs, e.read(lane, now)...)
	}
	return recs
}

// eligible tells whether a contract read at now returns the record.
func (e *env) eligible(rec outbox.Record, now time.Time) bool {
	e.Helper()
	_, ok := e.find(rec, now)
	return ok
}

// lookup returns the record as a contract read at now sees it.
func (e *env) lookup(rec outbox.Record, now time.Time) outbox.Record {
	e.Helper()
	got, ok := e.find(rec, now)
	if !ok {
		e.Fatalf("record %s is not eligible at %v", rec.ID, now)
	}
	return got
}

func (e *env) find(rec outbox.Record, now time.Time) (outbox.Record, bool) {
	e.Helper()
	lanes := []outbox.Lane{outbox.Unordered}
	if rec.Message.Key != nil {
		lanes = e.orderedLanes()
		if r, ok := e.route(); ok {
			lanes = []outbox.Lane{outbox.LaneOf(r, rec.ID, rec.Message.Key)}
		}
	}
	for _, lane := range lanes {
		for _, got := range e.read(lane, now) {
			if got.ID == rec.ID {
				return got, true
			}
		}
	}
	return outbox.Record{}, false
}

// route is the harness's route, if the store can tell.
func (e *env) route() (outbox.Route, bool) {
	r, ok := e.store.(outbox.Router)
	if !ok {
		return outbox.Route{}, false
	}
	routes, err := r.Routes(e.ctx)
	e.ok(err)
	for _, route := range routes {
		if route.Name == e.fix.route {
			return route, true
		}
	}
	e.Fatalf("the store has no route %q: %v", e.fix.route, routes)
	return outbox.Route{}, false
}

func (e *env) count(now time.Time) int64 {
	e.Helper()
	n, err := e.store.PendingCount(e.ctx, now)
	e.ok(err)
	return n
}

// claim takes a claim that must succeed.
func (e *env) claim(id outbox.ID, now, expires time.Time) outbox.Claim {
	e.Helper()
	c := outbox.Claim{ID: id, Token: outbox.NewToken()}
	ok, err := e.store.TryClaim(e.ctx, c, now, expires)
	e.yes("TryClaim", ok, err)
	return c
}

// fail makes one failed attempt at e.now through the contract.
func (e *env) fail(id outbox.ID, retryAt time.Time) {
	e.Helper()
	c := e.claim(id, e.now, e.now.Add(time.Minute))
	ok, err := e.store.RecordFailure(e.ctx, c, e.now, outbox.Failure{Reason: "refused", RetryAt: retryAt})
	e.yes("RecordFailure", ok, err)
}

// others returns n stores over the same tables that may be used at once: other
// instances, or the one instance if it allows that, or the one instance behind
// a mutex.
func (e *env) others(n int) []outbox.Store {
	e.Helper()
	stores := make([]outbox.Store, n)
	var mu sync.Mutex
	conc, _ := e.store.(outbox.Concurrent)
	for i := range stores {
		switch {
		case e.fix.open != nil && i < 4:
			stores[i] = e.fix.open(e.TB, "")
		case e.fix.open != nil:
			stores[i] = stores[i%4]
		default:
			stores[i] = e.store
		}
		if conc == nil || !conc.ConcurrentUse() {
			stores[i] = &serial{Store: stores[i], mu: &mu}
		}
	}
	return stores
}

// serial lets one claim operation in at a time.
type serial struct {
	outbox.Store
	mu *sync.Mutex
}

func (s *serial) TryClaim(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.TryClaim(ctx, c, now, expires)
}

func (s *serial) Complete(ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Complete(ctx, c, now)
}

func (s *serial) RecordFailure(ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.RecordFailure(ctx, c, now, f)
}

// together starts the functions at one moment and waits for all.
func together(fns ...func()) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for _, fn := range fns {
		wg.Add(1)
		go func() {
			defer wg.Done()
			<-start
			fn()
		}()
	}
	close(start)
	wg.Wait()
}

// ids returns the records' ids, sorted.
func ids(recs []outbox.Record) []outbox.ID {
	out := make([]outbox.ID, len(recs))
	for i, r := range recs {
		out[i] = r.ID
	}
	slices.SortFunc(out, compareID)
	return out
}

func compareID(a, b outbox.ID) int { return strings.Compare(string(a[:]), string(b[:])) }

// has tells whether a record of that id is among recs.
func has(recs []outbox.Record, id outbox.ID) bool {
	return slices.ContainsFunc(recs, func(r outbox.Record) bool { return r.ID == id })
}
