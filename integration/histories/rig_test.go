// Package histories_test records what many clients see when they claim, lease
// and settle at once on a real engine, and has porcupine look for an order of
// these calls that the contract allows.
//
// The operations of a run follow from its seed; how they interleave is the
// engine's and the machine's affair. -histories.seed repeats one seed,
// POSTRIDER_PROVE=1 runs many more of them.
package histories_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

var onlySeed = flag.Uint64("histories.seed", 0, "run this seed alone")

func TestMain(m *testing.M) { testenv.Main(m) }

type engine struct {
	name    string
	driver  string
	dsn     func(testing.TB) string
	dialect *sqlstore.Dialect
	server  bool // connections can be killed, and a killed call may still commit
}

var engines = []engine{
	{"postgres", "pgx", testenv.Postgres, sqlstore.PostgreSQL, true},
	{"pgxstore", stores.Native, testenv.Postgres, sqlstore.PostgreSQL, true},
	{"sqlite", "sqlite", testenv.SQLite, sqlstore.SQLite, false},
	{"mysql", "mysql", testenv.MySQL, sqlstore.MySQL, true},
}

// seeds are 1 to n; with POSTRIDER_PROVE=1 to long.
func (e engine) seeds(n, long int) (list []uint64) {
	switch {
	case *onlySeed != 0:
		return []uint64{*onlySeed}
	case os.Getenv("POSTRIDER_PROVE") == "1":
		n = long
	}
	for i := range n {
		list = append(list, uint64(i+1))
	}
	return list
}

func onEngines(t *testing.T, run func(t *testing.T, e engine)) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			run(t, e)
		})
	}
}

// subject is what the histories are made on.
type subject interface {
	outbox.Store
	outbox.LaneStore
	outbox.Releaser
}

// rig is one history in the making.
type rig struct {
	tb      testing.TB
	e       engine
	store   stores.Store
	subject subject
	pinned  bool // lane calls of every second client go over a connection of its own
	db      *sql.DB
	control *sql.DB // its one connection is never killed
	pools   []*sql.DB
	route   outbox.Route

	rows    []place
	byID    map[outbox.ID]int
	history history
	number  atomic.Int64
	calling chan struct{} // a call has begun
	base    time.Time     // virtual tick 0
	ticks   atomic.Int64
	settled atomic.Int64
	start   time.Time // monotonic
	offset  int64     // server's clock at start, in microseconds
	slack   int64     // how far off that can be

	mu     sync.Mutex
	owners []outbox.ID // owner n is owners[n-1]
	leases map[outbox.Lane][]lease
	last   []seen // of each row, what was read last
	tally  tallies
}

// close gives the connections back before the test ends.
func (g *rig) close() {
	for _, db := range g.pools {
		stores.Close(db)
	}
}

// laneCount is the number of ordered and of unordered lanes.
const laneCount = 2

// newRig makes a store with so many keyed and as many unkeyed rows a lane.
func newRig(tb testing.TB, e engine, perLane int) *rig {
	tb.Helper()
	dsn := e.dsn(tb)
	g := &rig{
		tb: tb, e: e, byID: map[outbox.ID]int{}, leases: map[outbox.Lane][]lease{}, tally: tallies{},
		calling: make(chan struct{}, 1),
		// Ahead of the server's clock: what is claimed or waits by virtual time
		// does so for the lane's owner too.
		base: time.Now().Add(time.Hour).Truncate(time.Second),
	}
	open := func(dsn string, conns int) *sql.DB {
		db := stores.Open(tb, e.driver, dsn)
		db.SetMaxOpenConns(conns)
		g.pools = append(g.pools, db)
		return db
	}
	g.db, g.control = open(e.marked(tb, dsn), 16), open(dsn, 1)
	s, err := stores.New(g.db, e.dialect, &sqlstore.Options{Routes: []outbox.Route{{Name: "default", Ordered: laneCount, Unordered: laneCount}}})
	g.must(err)
	g.must(s.Migrate(tb.Context()))
	routes, err := s.Routes(tb.Context())
	g.must(err)
	g.store, g.subject, g.pinned, g.route = s, s, true, routes[0]
	g.enlist(perLane)
	g.synchronise()
	return g
}

func (g *rig) must(err error) {
	g.tb.Helper()
	if err != nil {
		g.tb.Fatal(err)
	}
}

func (g *rig) lanes() (list []outbox.Lane) {
	for i := range g.route.Lanes() {
		list = append(list, g.route.First+outbox.Lane(i))
	}
	return list
}

// enlist fills every lane with rows and learns their positions.
func (g *rig) enlist(perLane int) {
	g.tb.Helper()
	ctx := g.tb.Context()
	var recs []outbox.Record
	for _, lane := range g.lanes() {
		keyed := lane < g.route.First+laneCount
		for n := 0; n < perLane; {
			r := outbox.Record{
				ID: outbox.NewID(), Transport: g.route.Name, Type: "test.made.v1", CreatedAt: time.Now(),
				Message: outbox.Message{Destination: "test", Event: outbox.Event{Source: "/test"}},
			}
			if keyed {
				r.Message.Key = []byte(r.ID.String())
			}
			if outbox.LaneOf(g.route, r.ID, r.Message.Key) != lane {
				continue
			}
			n++
			g.byID[r.ID] = len(recs)
			g.rows = append(g.rows, place{number: len(recs), id: r.ID, lane: lane, keyed: keyed})
			recs = append(recs, r)
		}
	}
	g.must(stores.Enlist(ctx, g.db, g.store, recs...))
	dst := make([]outbox.LaneRow, 512)
	for _, lane := range g.lanes() {
		n, err := g.store.ReadLanes(ctx, []outbox.LaneRead{{Lane: lane}}, dst)
		g.must(err)
		for _, r := range dst[:n] {
			g.rows[g.byID[r.Record.ID]].pos = r.Pos
		}
	}
	for _, r := range g.rows {
		if r.pos == 0 {
			g.tb.Fatalf("row %d was enlisted and is not there", r.number)
		}
		g.last = append(g.last, seen{lane: r.lane, pos: r.pos})
	}
}

// synchronise learns the server's clock. Three milliseconds are added to the
// error: one engine counts whole ones, and both clocks are slewed.
func (g *rig) synchronise() {
	g.tb.Helper()
	g.start = time.Now()
	best := time.Hour
	for range 10 {
		before := time.Since(g.start)
		t, err := g.store.ServerTime(g.tb.Context())
		after := time.Since(g.start)
		g.must(err)
		if after-before < best {
			best = after - before
			g.offset = t.UnixMicro() - (before + best/2).Microseconds()
		}
	}
	g.slack = best.Microseconds() + 3000
}

// clock is the server's clock as far as it is known here.
func (g *rig) clock() int64 { return time.Since(g.start).Microseconds() + g.offset }

func (g *rig) at(tick int64) time.Time { return g.base.Add(time.Duration(tick) * time.Millisecond) }

func (g *rig) newOwner() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.owners = append(g.owners, outbox.NewID())
	return len(g.owners)
}

func (g *rig) ownerID(n int) outbox.ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.owners[n-1]
}

func (g *rig) count(what string) {
	g.mu.Lock()
	g.tally[what]++
	g.mu.Unlock()
}

// stranger is an owner that was never granted anything.
const stranger = -1

// pick is a lease of the lane that was granted: the last one, or an older one.
// Before the first, it is a stranger's: a lease that is used before it was
// granted would be nothing that the store has to order.
func (g *rig) pick(lane outbox.Lane, old int) lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.leases[lane]
	if len(list) == 0 {
		return lease{lane, stranger, 1}
	}
	return list[max(0, len(list)-1-old)]
}

// client is one of those who work at the same time.
type client struct {
	*rig
	number  int
	lanes   outbox.LaneStore
	session outbox.LaneSession
	owner   int
	held    []lease
}

func (g *rig) newClient(n int) *client {
	return &client{rig: g, number: n, lanes: g.subject}
}

// connect gives every second client a connection of its own for its lane calls,
// a new one after an error.
func (c *client) connect(ctx context.Context) {
	if !c.pinned || c.number%2 != 0 || c.session != nil {
		return
	}
	if s, err := c.store.LaneSession(ctx, "history"); err == nil {
		c.session, c.lanes = s, s
	}
}

func (c *client) disconnect() {
	if c.session != nil {
		// It may have been killed: then there is nothing to close.
		_ = c.session.Close()
		c.session, c.lanes = nil, c.subject
	}
}

// call runs fn and records the operation with its times. An error of the
// contract is an answer; after any other one the outcome is open.
func (c *client) call(ctx context.Context, o *op, cancelAfter time.Duration, fn func(ctx context.Context) error) {
	o.client, o.number = c.number, int(c.rig.number.Add(1))
	select {
	case c.calling <- struct{}{}:
	default:
	}
	if cancelAfter >= 0 {
		cancelled, cancel := context.WithTimeout(ctx, cancelAfter)
		defer cancel()
		ctx = cancelled
	}
	o.call = c.clock()
	err := fn(ctx)
	o.cut = c.clock()
	o.ret, o.err = o.cut, err
	switch {
	case err == nil:
	case errors.Is(err, outbox.ErrOwnerEnded):
		o.ownerOver = true
	case errors.As(err, new(*pgconn.ConnectError)):
		// Nothing was sent.
		o.unknown = true
		c.disconnect()
		return
	case errors.Is(err, outbox.ErrInvalidArgument):
		c.tb.Errorf("client %d: %s: %v", c.number, o.kind, err)
	default:
		o.unknown = true
		c.count("unanswered")
		c.disconnect()
	}
	c.history.add(o)
}

// settleDown waits until no call is at work on the server any more: unanswered
// ones have ended by then, one way or the other.
func (g *rig) settleDown() error {
	for deadline := time.Now().Add(time.Minute); g.e.server; time.Sleep(2 * time.Millisecond) {
		busy, err := g.atWork(g.tb.Context())
		if err != nil {
			return err
		}
		if busy == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d connections are at work a minute after the last call", busy)
		}
	}
	now := g.clock()
	for _, o := range g.history.ops {
		if o.unknown && g.e.server {
			o.ret = now
		}
	}
	return nil
}

// killer ends one of the connections once in so many calls, on average, until
// ctx is done. It goes by calls and not by time: each of its victims leaves an
// outcome open, and a slow machine would make more of them than can be searched.
func (g *rig) killer(ctx context.Context, rng *rand.Rand, every int) {
	for g.e.server {
		for range 1 + rng.IntN(2*every) {
			select {
			case <-ctx.Done():
				return
			case <-g.calling:
			}
		}
		if killed, err := g.kill(ctx); err == nil && killed {
			g.count("connection killed")
		}
	}
}

// look ends the history with reads of all rows, after every claim and retry.
func (g *rig) look() {
	c := g.newClient(-1)
	for _, lane := range append(g.lanes()[:laneCount:laneCount], outbox.Unordered) {
		c.readPending(g.tb.Context(), lane, 1<<40, -1)
	}
}

// mustOccur fails the test if one of these never happened: the proof would be
// empty there.
func mustOccur(t *testing.T, tally tallies, want ...string) {
	t.Helper()
	var list []string
	for _, what := range slices.Sorted(maps.Keys(tally)) {
		list = append(list, fmt.Sprintf("%s %d", what, tally[what]))
	}
	t.Logf("occurrences: %s", strings.Join(list, ", "))
	for _, what := range want {
		if tally[what] == 0 {
			t.Errorf("%q never occurred", what)
		}
	}
}
