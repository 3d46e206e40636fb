//go:build prove

// Package crashpoints_test kills a relay, or cuts its connection, at every
// statement and every broker call of one scenario, on every engine, one point
// a run, and checks what the others make of it. Over database/sql it stands
// between the library and the driver, over pgx between the library and the
// network.
//
// The points are found by running: first without a fault, then with one at
// every point met so far, until no run meets a new one before its fault.
// POSTRIDER_PROVE=1 tries every kind of fault at every point of both relays;
// otherwise the kinds take turns, and the second relay is struck only where it
// does what the first one does not. -crashpoints.only repeats a case as it is
// printed.
package crashpoints_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/store/sqlstore"
)

var (
	only    = flag.String("crashpoints.only", "", `run this case alone, as "A settle/COMMIT #3: kill after"`)
	repeat  = flag.Int("crashpoints.repeat", 1, "run the case of -crashpoints.only so many times")
	workers = flag.Int("crashpoints.workers", 18, "most scenarios at once")
)

func TestMain(m *testing.M) { testenv.Main(m) }

type engine struct {
	name    string
	driver  string
	dsn     func(testing.TB) string
	dialect *sqlstore.Dialect
	late    bool // transactions can commit out of the order of their positions
	native  bool // the relays are over pgx itself; who writes and looks on is over database/sql
	reset   []string
}

var resetPostgres = []string{
	`TRUNCATE postrider_outbox, postrider_deferred, postrider_dead, postrider_relays, postrider_parked_keys, postrider_audit`,
	`SELECT setval('postrider_outbox_pos', 1, false)`,
}

var engines = []engine{
	{"postgres", "pgx", testenv.Postgres, sqlstore.PostgreSQL, true, false, resetPostgres},
	{"pgxstore", "pgx", testenv.Postgres, sqlstore.PostgreSQL, true, true, resetPostgres},
	{"sqlite", "sqlite", testenv.SQLite, sqlstore.SQLite, false, false, []string{
		`DELETE FROM postrider_outbox`, `DELETE FROM postrider_deferred`, `DELETE FROM postrider_dead`, `DELETE FROM postrider_relays`,
		`DELETE FROM postrider_parked_keys`, `DELETE FROM postrider_audit`, `DELETE FROM sqlite_sequence`,
	}},
	{"mysql", "mysql", func(tb testing.TB) string { return testenv.MySQL(tb) + "?interpolateParams=true" }, sqlstore.MySQL, true, false, []string{
		`DELETE FROM postrider_outbox`, `DELETE FROM postrider_deferred`, `DELETE FROM postrider_dead`, `DELETE FROM postrider_relays`,
		`DELETE FROM postrider_parked_keys`, `DELETE FROM postrider_audit`, `ALTER TABLE postrider_outbox AUTO_INCREMENT = 1`,
	}},
}

// bed is a database for one run after the other.
type bed struct {
	e       engine
	dsn     string
	driver  driver.Driver
	db      *sql.DB
	store   *sqlstore.Store
	zombies *sync.WaitGroup // killed relays that have not noticed yet
}

func newBed(t *testing.T, e engine, zombies *sync.WaitGroup) *bed {
	t.Helper()
	dsn := e.dsn(t)
	db, err := sql.Open(e.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(2)
	t.Cleanup(func() { db.Close() })
	s, err := sqlstore.New(db, e.dialect, &sqlstore.Options{Routes: routes})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &bed{e, dsn, db.Driver(), db, s, zombies}
}

// open opens the store of a relay process, and tells how to close what is under it.
func (b *bed) open(p *process) (s stores.Store, hang func(), err error) {
	if b.e.native {
		return openNative(p, b.dsn)
	}
	db := sql.OpenDB(&connector{p, b.driver, b.dsn})
	db.SetMaxOpenConns(conns)
	s, err = sqlstore.New(db, b.e.dialect, &sqlstore.Options{Routes: routes})
	return s, func() { db.Close() }, err
}

// conns is the limit of a relay process's pool.
const conns = 7

// clear makes the tables as new.
func (b *bed) clear(ctx context.Context) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, text := range append(slices.Clone(b.e.reset),
		`UPDATE postrider_lanes SET owner = NULL, unclean = 0, epoch = 0, config = 0`,
		`UPDATE postrider_lane_marks SET tried_to = 0, config_seen = 0`) {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return tx.Commit()
}

// result is what came of a case.
type result struct {
	aim     aim
	fired   bool
	met     map[point]bool
	lines   []string
	err     error
	twice   int  // deliveries beyond the first
	slow    bool // a relay lost its leases because the machine was too slow for it
	skipped bool // for lack of time
	took    time.Duration
}

// pace is how many cases run at once on all engines: more while the machine keeps
// up, fewer when relays that nothing happened to lose their leases.
type pace struct {
	mu    sync.Mutex
	free  *sync.Cond
	busy  int
	width float64
}

func newPace() *pace {
	p := &pace{width: 4}
	p.free = sync.NewCond(&p.mu)
	return p
}

func (p *pace) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.busy >= int(p.width) {
		p.free.Wait()
	}
	p.busy++
}

func (p *pace) end(slow bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	if slow {
		p.width = max(p.width*0.8, 2)
	} else {
		p.width = min(p.width+0.3, float64(*workers))
	}
	p.free.Broadcast()
}

// yard runs cases on one engine.
type yard struct {
	t     *testing.T
	e     engine
	pace  *pace
	beds  chan *bed
	began time.Time
	cases atomic.Int32
}

const (
	// budget is how long an engine may take, unless everything is to be proved or
	// it has run fewer than fewest cases. On two idle cores it is not reached.
	budget = 100 * time.Second
	fewest = 40
)

func newYard(t *testing.T, e engine, n int, p *pace) *yard {
	y := &yard{t: t, e: e, pace: p, beds: make(chan *bed, n), began: time.Now()}
	zombies := &sync.WaitGroup{}
	for range n {
		y.beds <- newBed(t, e, zombies)
	}
	// Before the databases go: cleanups run backwards.
	t.Cleanup(zombies.Wait)
	return y
}

// tries is how often a case is run whose point was not met: another interleaving
// may have it.
const tries = 2

func (y *yard) try(a aim, br breach) (res result) {
	for range tries {
		b := <-y.beds
		y.pace.begin()
		r := newRun(b, a, br)
		err := b.clear(y.t.Context())
		if err == nil {
			err = r.play()
		}
		r.mu.Lock()
		res = result{
			aim: a, fired: r.fired, met: r.met, lines: r.lines, err: err, slow: r.slow, took: time.Since(r.began),
			twice: len(r.broker.rec.Accepted()) - len(r.broker.rec.First()),
		}
		r.mu.Unlock()
		y.pace.end(res.slow)
		y.beds <- b
		if res.fired || err != nil || a.fault == none {
			break
		}
	}
	return res
}

// all runs the cases.
func (y *yard) all(aims []aim) []result {
	out := make([]result, len(aims))
	var wg sync.WaitGroup
	gate := make(chan struct{}, cap(y.beds))
	for i, a := range aims {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			if !prove && y.cases.Add(1) > fewest && time.Since(y.began) > budget {
				out[i] = result{aim: a, skipped: true}
				return
			}
			out[i] = y.try(a, breach{})
			if err := out[i].err; err != nil {
				y.t.Errorf("%s: %v\nrepeat it with -crashpoints.only=%q\n%s", a, err, a, strings.Join(out[i].lines, "\n"))
			}
		})
	}
	wg.Wait()
	return out
}

func onEngines(t *testing.T, fn func(t *testing.T, e engine)) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			fn(t, e)
		})
	}
}

// light tells that one point of each kind has to do: what a native store does at
// each point of a kind is what the other one does on the same database.
func (e engine) light() bool { return e.native && !prove }

var prove = os.Getenv("POSTRIDER_PROVE") == "1"

// quiet is how many runs without a fault look for points.
const quiet = 6

// faultsAt are the kinds of fault that differ at a point.
func faultsAt(lasting bool) []fault {
	if lasting {
		return []fault{killBefore, cutAfter, killAfter, cutBefore}
	}
	return []fault{killBefore, cutBefore}
}

// needed are the kinds of point without which a run proves little.
var needed = []string{
	"acquire/COMMIT", "acquire/UPDATE lanes", "end/COMMIT", "settle/COMMIT", "settle/DELETE outbox", "settle/INSERT dead", "settle/INSERT parked_keys",
	"promote/INSERT outbox", "move parked/INSERT outbox", "parked keys/SELECT parked_keys", "read/SELECT outbox", "send a1", "send b2", "send c2", "send q1", "send s1",
}

// Whatever happens to a relay at whatever moment: every committed message
// arrives, no other does, first deliveries are in order, attempts are counted
// once, each row is in one place, and nothing is left over.
func TestCrashPoints(t *testing.T) {
	pace := newPace()
	onEngines(t, func(t *testing.T, e engine) {
		y := newYard(t, e, min(*workers, 12), pace)
		if *only != "" {
			for _, res := range y.all(slices.Repeat([]aim{parseAim(t, *only)}, *repeat)) {
				t.Logf("met: %v, took %v\n%s", res.fired, res.took, strings.Join(res.lines, "\n"))
			}
			return
		}
		began := time.Now()
		known, names := map[point]bool{}, map[string]bool{}
		take := func(results []result) (fresh []point) {
			for _, res := range results {
				for p, lasting := range res.met {
					if _, seen := known[p]; !seen {
						fresh = append(fresh, p)
						known[p] = lasting
					}
				}
			}
			for _, p := range fresh {
				names[p.relay+" "+p.name] = true
			}
			slices.SortFunc(fresh, func(a, b point) int {
				return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.name, b.name), cmp.Compare(a.relay, b.relay))
			})
			return fresh
		}
		fresh := take(y.all(make([]aim, quiet)))
		cases, skipped, unmet, twice, calm := 0, 0, 0, 0, 0
		perFault := map[fault]int{}
		hit, chosen := map[string]bool{}, map[string]bool{}
		strike := func(aims []aim) []result {
			results := y.all(aims)
			for _, res := range results {
				if res.skipped {
					skipped++
					continue
				}
				cases++
				twice += res.twice
				if !res.slow {
					calm++
				}
				if res.fired {
					perFault[res.aim.fault]++
					hit[res.aim.name] = true
				} else {
					unmet++
				}
			}
			return results
		}
		for rounds := 1; len(fresh) > 0 && !t.Failed(); rounds++ {
			var aims []aim
			for _, p := range fresh {
				if !prove && p.relay != "A" && names["A "+p.name] || e.light() && chosen[p.name] {
					continue
				}
				chosen[p.name] = true
				kinds := faultsAt(known[p])
				if !prove {
					turn := p.n
					for _, c := range p.name {
						turn += int(c)
					}
					kinds = kinds[turn%len(kinds):][:1]
				}
				for _, f := range kinds {
					aims = append(aims, aim{p, f})
				}
			}
			results := strike(aims)
			t.Logf("round %d: %d new points, %d cases, %v", rounds, len(fresh), len(aims), time.Since(began).Round(time.Second))
			fresh = take(results)
		}
		// A point is met again only in an interleaving like the one that showed it;
		// where none of a needed kind was, any point of the kind does.
		for _, name := range needed {
			if !hit[name] && !t.Failed() {
				strike([]aim{{point{name: name}, killBefore}, {point{name: name}, cutBefore}})
			}
		}
		kinds := map[string]int{}
		for p := range known {
			kinds[p.name]++
		}
		var list []string
		for _, name := range slices.Sorted(maps.Keys(kinds)) {
			line := fmt.Sprintf("%s x%d", name, kinds[name])
			if !hit[name] {
				line += " (not struck)"
			}
			list = append(list, line)
		}
		t.Logf("%d points of %d kinds, %d cases: %d kills before, %d after, %d cuts before, %d after, %d not met again, %d left out for lack of time; in %d the machine was fast enough; %d messages were delivered twice; %v\n%s",
			len(known), len(kinds), cases, perFault[killBefore], perFault[killAfter], perFault[cutBefore], perFault[cutAfter], unmet, skipped, calm, twice,
			time.Since(began).Round(time.Second), strings.Join(list, "\n"))
		for _, name := range needed {
			if !hit[name] && skipped == 0 && !t.Failed() {
				t.Errorf("no case struck at %s", name)
			}
		}
	})
}

// parseAim reads a case as it is printed.
func parseAim(t *testing.T, s string) (a aim) {
	t.Helper()
	where, kind, ok := strings.Cut(s, ": ")
	i := strings.LastIndex(where, " #")
	if !ok || i < 0 {
		t.Fatalf("%q is no case: use one as it is printed", s)
	}
	a.relay, a.name, _ = strings.Cut(where[:i], " ")
	fmt.Sscanf(where[i+2:], "%d", &a.n)
	for f := killBefore; f <= cutAfter; f++ {
		if f.String() == kind {
			a.fault = f
		}
	}
	if a.fault == none || a.n == 0 {
		t.Fatalf("%q is no case: use one as it is printed", s)
	}
	return a
}
