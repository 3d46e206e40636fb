package relay_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/transporttest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type engine struct {
	name    string
	driver  string
	dsn     func(testing.TB) string
	dialect *sqlstore.Dialect
	late    bool // transactions can commit out of the order of their positions
}

var engines = []engine{
	{"postgres", "pgx", testenv.Postgres, sqlstore.PostgreSQL, true},
	{"pgxstore", stores.Native, testenv.Postgres, sqlstore.PostgreSQL, true},
	{"sqlite", "sqlite", testenv.SQLite, sqlstore.SQLite, false},
	{"mysql", "mysql", testenv.MySQL, sqlstore.MySQL, true},
}

// named are engines of which none is started: they run where the environment names one.
var named = []engine{
	{"oracle", "oracle", testenv.Oracle, sqlstore.Oracle, true},
	{"sqlserver", "sqlserver", testenv.SQLServer, sqlstore.SQLServer, true},
}

func onEngines(t *testing.T, run func(t *testing.T, g *rig)) { on(t, run, engines) }

// onAll runs on those that the environment may name as well.
func onAll(t *testing.T, run func(t *testing.T, g *rig)) { on(t, run, slices.Concat(engines, named)) }

func on(t *testing.T, run func(t *testing.T, g *rig), list []engine) {
	for _, e := range list {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			run(t, newRig(t, e, nil, nil))
		})
	}
}

// onServers runs where several connections can write at once, and on more.
func onServers(t *testing.T, run func(t *testing.T, e engine), more ...engine) {
	t.Parallel()
	for _, e := range slices.Concat(engines, more) {
		if e.late {
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				run(t, e)
			})
		}
	}
}

// rig is a store on a real engine and a recorder.
type rig struct {
	t      *testing.T
	e      engine
	writer *sql.DB
	db     *sql.DB
	store  stores.Store
	rec    *transporttest.Recorder
}

func newRig(t *testing.T, e engine, routes []outbox.Route, rec *transporttest.Options) *rig {
	t.Helper()
	dsn := e.dsn(t)
	open := func(conns int) *sql.DB {
		db := stores.Open(t, e.driver, dsn)
		db.SetMaxOpenConns(conns)
		return db
	}
	g := &rig{t: t, e: e, db: open(20), rec: transporttest.NewRecorder(rec)}
	g.writer = g.db
	if !e.late {
		g.writer = open(1) // one writer: the producers queue in the process, not in the file
	}
	var err error
	if g.store, err = stores.New(g.db, e.dialect, &sqlstore.Options{Routes: routes}); err != nil {
		t.Fatal(err)
	}
	if err := g.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	number := "bigint"
	if e.dialect == sqlstore.Oracle {
		number = "number(19)"
	}
	if _, err := g.db.Exec(`CREATE TABLE counters (k varchar(100) PRIMARY KEY, n ` + number + ` NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *rig) record(key, body string) outbox.Record {
	r := outbox.Record{
		ID: outbox.NewID(), Transport: "default", Type: "test.made.v1", CreatedAt: time.Now(),
		Message: outbox.Message{Destination: "test", Body: []byte(body), Event: outbox.Event{Source: "/test"}},
	}
	if key != "" {
		r.Message.Key = []byte(key)
	}
	return r
}

// publish draws the key's next number under the key's row lock and enlists the
// message, in a transaction that end commits or rolls back.
func (g *rig) publish(key string) (end func(commit bool) error) {
	g.t.Helper()
	return g.publishAt(key, 0)
}

// publishAt publishes as a producer whose clock is off by skew.
func (g *rig) publishAt(key string, skew time.Duration) (end func(commit bool) error) {
	g.t.Helper()
	ctx := context.Background()
	tx, err := stores.Begin(ctx, g.writer)
	if err != nil {
		g.t.Fatal(err)
	}
	n, err := g.number(ctx, tx, key)
	if err != nil {
		g.t.Fatal(err)
	}
	rec := g.record(key, fmt.Sprintf("%s/%d", key, n))
	if skew != 0 {
		rec.CreatedAt = rec.CreatedAt.Add(skew)
		ms := rec.CreatedAt.UnixMilli() // the time that leads a UUIDv7
		for i := range 6 {
			rec.ID[i] = byte(ms >> (40 - 8*i))
		}
	}
	if err := tx.Enlist(ctx, g.store, rec); err != nil {
		g.t.Fatal(err)
	}
	return func(commit bool) error {
		if commit {
			return tx.Commit()
		}
		return tx.Rollback()
	}
}

// number draws the key's next number and locks the key's row until the end of tx.
func (g *rig) number(ctx context.Context, tx stores.Tx, key string) (n int, err error) {
	switch g.e.dialect {
	case sqlstore.Oracle:
		return g.numberIn(ctx, tx, key, ":1", "ORA-00001")
	case sqlstore.SQLServer:
		return g.numberIn(ctx, tx, key, "@p1", "duplicate key")
	case sqlstore.PostgreSQL, sqlstore.SQLite:
		err = tx.QueryRow(ctx, `INSERT INTO counters (k, n) VALUES ($1, 1) ON CONFLICT (k) DO UPDATE SET n = counters.n + 1 RETURNING n`, key).Scan(&n)
		return n, err
	}
	// A row that is there already: those who wait for one that is rolled back end
	// in a deadlock.
	if _, err := g.writer.ExecContext(ctx, `INSERT IGNORE INTO counters (k, n) VALUES (?, 0)`, key); err != nil {
		return 0, err
	}
	if err := tx.Exec(ctx, `UPDATE counters SET n = LAST_INSERT_ID(n + 1) WHERE k = ?`, key); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT LAST_INSERT_ID()`).Scan(&n)
	return n, err
}

// numberIn is number with statements that every engine has. mark is its argument, and
// taken is in the error of a row that is there.
func (g *rig) numberIn(ctx context.Context, tx stores.Tx, key, mark, taken string) (n int, err error) {
	if _, err := g.writer.ExecContext(ctx, `INSERT INTO counters (k, n) VALUES (`+mark+`, 0)`, key); err != nil && !strings.Contains(err.Error(), taken) {
		return 0, err
	}
	if err := tx.Exec(ctx, `UPDATE counters SET n = n + 1 WHERE k = `+mark, key); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT n FROM counters WHERE k = `+mark, key).Scan(&n)
	return n, err
}

func (g *rig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) start(opts *relay.Options) (r *relay.Relay, stop func() error) {
	g.t.Helper()
	r, err := relay.New(g.store, map[string]transport.Transport{"default": g.rec}, opts)
	g.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	g.t.Cleanup(func() { _ = stop() })
	return r, stop
}

// waitAccepted waits until n different messages are out.
func (g *rig) waitAccepted(n int) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	g.must(g.rec.WaitFirst(ctx, n))
}

func (g *rig) pending() int64 {
	g.t.Helper()
	n, err := g.store.PendingCount(context.Background(), time.Now().Add(time.Hour))
	g.must(err)
	return n
}

func (g *rig) inOrder() {
	g.t.Helper()
	next := map[string]int{}
	for _, s := range g.rec.First() {
		key := string(s.Record.Message.Key)
		next[key]++
		if want := fmt.Sprintf("%s/%d", key, next[key]); want != string(s.Record.Message.Body) {
			g.t.Fatalf("P3: key %s was delivered %s when %s was due", key, s.Record.Message.Body, want)
		}
	}
	if v := g.rec.Violations(); len(v) > 0 {
		g.t.Fatalf("P3: %v", v)
	}
}

// TestLateCommitBelowCursor is the schedule in which a reader that trusts its
// cursor inverts a key: T1 (key K) draws 1; T3 (another key, same lane) draws 2,
// commits and is read; T1 commits; T2 (K, which waited for the lock) draws 3 and
// commits. A read above the cursor returns 3 without 1.
func TestLateCommitBelowCursor(t *testing.T) { onServers(t, lateCommitBelowCursor, named...) }

func lateCommitBelowCursor(t *testing.T, e engine) {
	g := newRig(t, e, []outbox.Route{{Name: "default", Ordered: 1, Unordered: 1}}, nil)
	r, stop := g.start(nil)
	const rounds = 40
	for i := range rounds {
		k := fmt.Sprint("k", i)
		t1, t3 := g.publish(k), g.publish("other")
		g.must(t3(true))
		r.Wake()
		g.waitAccepted(3*i + 1) // the cursor stands at 2
		g.must(t1(true))
		g.must(g.publish(k)(true))
		r.Wake()
		g.waitAccepted(3*i + 3)
	}
	g.must(stop())
	g.inOrder()
}

// TestLoad runs producers with open transactions and rollbacks beside two
// relays, one of which is replaced again and again.
func TestLoad(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, g *rig) {
		const producers, each, keys = 6, 80, 10
		opts := &relay.Options{TTL: 2 * time.Second}
		_, stopA := g.start(opts)
		stopped := make(chan struct{})
		produced := make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				_, stop := g.start(opts)
				select {
				case <-produced:
					_ = stop()
					return
				case <-time.After(700 * time.Millisecond):
					if err := stop(); err != nil {
						t.Errorf("P8: %v", err)
					}
				}
			}
		}()
		var committed int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range producers {
			wg.Go(func() {
				for range each {
					end := g.publish(fmt.Sprint("k", rand.IntN(keys)))
					if rand.IntN(3) == 0 {
						time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond)
					}
					commit := rand.IntN(20) > 0
					if err := end(commit); err != nil {
						t.Error(err)
					}
					if commit {
						mu.Lock()
						committed++
						mu.Unlock()
					}
					time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		g.waitAccepted(committed)
		close(produced)
		<-stopped
		g.must(stopA())
		if n := len(g.rec.First()); n != committed {
			t.Errorf("%d messages delivered of %d committed", n, committed)
		}
		if n := g.pending(); n != 0 {
			t.Errorf("%d rows left", n)
		}
		g.inOrder()
	})
}

// TestConnectionsCut kills the relay's connections while messages flow.
func TestConnectionsCut(t *testing.T) { onServers(t, connectionsCut) }

func connectionsCut(t *testing.T, e engine) {
	g := newRig(t, e, nil, &transporttest.Options{Latency: time.Millisecond})
	var mu sync.Mutex
	var states []string
	_, stop := g.start(&relay.Options{TTL: 2 * time.Second, Hooks: relay.Hooks{Store: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, fmt.Sprint(err))
	}}})
	const messages = 600
	for i := range messages {
		g.must(g.publish(fmt.Sprint("k", i%15))(true))
		if i%150 == 75 {
			g.cut()
		}
	}
	g.waitAccepted(messages)
	for end := time.Now().Add(time.Minute); g.pending() > 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	g.must(stop())
	if n := len(g.rec.First()); n != messages || g.pending() != 0 {
		t.Fatalf("%d of %d delivered, %d pending", n, messages, g.pending())
	}
	g.inOrder()
	mu.Lock()
	defer mu.Unlock()
	for i, s := range states {
		if lost := s != "<nil>"; lost != (i%2 == 0) {
			t.Fatalf("D8: store hook saw %s, want loss and return in turn", strings.Join(states, "; "))
		}
	}
	if len(states) == 0 || !slices.Contains(states, "<nil>") {
		t.Errorf("D8: store hook saw %q after connections were cut", states)
	}
}

// cut kills the connections of relays; on MySQL, which cannot tell them apart, all
// that are not at work for the test.
func (g *rig) cut() {
	g.t.Helper()
	if g.e.dialect != sqlstore.MySQL {
		_, err := g.db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'postrider%' AND pid <> pg_backend_pid()`)
		g.must(err)
		return
	}
	ctx := context.Background()
	c, err := g.db.Conn(ctx)
	g.must(err)
	defer c.Close()
	rows, err := c.QueryContext(ctx, `SELECT id FROM `+testenv.MySQLSessions+` WHERE db = DATABASE() AND id <> CONNECTION_ID()`)
	g.must(err)
	var ids []any
	for rows.Next() {
		var id int64
		g.must(rows.Scan(&id))
		ids = append(ids, id)
	}
	g.must(rows.Err())
	for _, id := range ids {
		// One of them may have ended by itself.
		_, _ = c.ExecContext(ctx, fmt.Sprintf("KILL %d", id))
	}
	// A connection that is about to end would fail in the hands of the next user.
	for left := 1; left > 0; time.Sleep(5 * time.Millisecond) {
		text := `SELECT count(*) FROM ` + testenv.MySQLSessions + ` WHERE id IN (0` + strings.Repeat(", ?", len(ids)) + `)`
		g.must(c.QueryRowContext(ctx, text, ids...).Scan(&left))
	}
}

// TestClocksTenMinutesApart: two producers whose clocks differ write the same
// keys in turn, under the keys' row locks; their ids sort the other way round.
func TestClocksTenMinutesApart(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, g *rig) {
		const each, keys = 150, 3
		skews := []time.Duration{-5 * time.Minute, 5 * time.Minute}
		var wg sync.WaitGroup
		for _, skew := range skews {
			wg.Go(func() {
				for i := range each {
					if err := g.publishAt(fmt.Sprint("k", i%keys), skew)(true); err != nil {
						t.Error(err)
					}
				}
			})
		}
		_, stop := g.start(nil) // half of it is a backlog, half comes while it runs
		wg.Wait()
		g.waitAccepted(each * len(skews))
		g.must(stop())
		g.inOrder()
	})
}

// TestSchedule holds a scheduled message back, through a restart of the relay.
func TestSchedule(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, g *rig) {
		due := time.Now().Add(5 * time.Second) // not before the first relay has read
		r := g.record("k", "late")
		r.Message.DeliverAt = due
		tx, err := stores.Begin(t.Context(), g.writer)
		g.must(err)
		g.must(tx.Enlist(t.Context(), g.store, r, g.record("k", "now")))
		g.must(tx.Commit())
		_, stop := g.start(nil)
		g.waitAccepted(1)
		g.must(stop())
		_, stop = g.start(nil)
		g.waitAccepted(2)
		g.must(stop())
		sent := g.rec.Accepted()
		if string(sent[0].Record.Message.Body) != "now" || string(sent[1].Record.Message.Body) != "late" || sent[1].At.Before(due) {
			t.Fatalf("R4: sent %q at %v and %q at %v, due %v", sent[0].Record.Message.Body, sent[0].At, sent[1].Record.Message.Body, sent[1].At, due)
		}
	})
}
