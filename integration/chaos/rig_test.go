//go:build prove && linux

package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// rig is an outbox in a database, the business rows beside it, and a stream.
// It reaches both past all proxies.
type rig struct {
	t      *testing.T
	db     *sql.DB
	store  *sqlstore.Store
	stream jetstream.Stream
	name   string // of the stream, and of its subject
	spawn  spawner

	mu         sync.Mutex
	committing map[string]time.Time // by message: the clock before its commit
	unanswered int                  // commits whose outcome the producer did not learn
	stopping   time.Time            // since when its relays are told to stop
}

const patience = 2 * time.Minute // for whatever must come about on a busy machine

func newRig(t *testing.T, spawn spawner, postgres, nats string) *rig {
	t.Helper()
	g := &rig{t: t, spawn: spawn, name: testenv.Name("chaos"), committing: map[string]time.Time{}}
	var err error
	g.db, err = sql.Open("pgx", postgres)
	g.must(err)
	g.db.SetMaxIdleConns(20)
	t.Cleanup(func() { g.db.Close() })
	g.store, err = sqlstore.New(g.db, sqlstore.PostgreSQL, nil)
	g.must(err)
	g.must(g.store.Migrate(t.Context()))
	for _, q := range []string{
		`CREATE TABLE counters (k text PRIMARY KEY, n bigint NOT NULL)`,
		`CREATE TABLE orders (id text PRIMARY KEY, k text NOT NULL, n bigint NOT NULL, due bigint NOT NULL)`,
	} {
		_, err = g.db.Exec(q)
		g.must(err)
	}
	nc, err := natsgo.Connect(nats, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}))
	g.must(err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	g.must(err)
	// The smallest duplicate window there is: what is sent twice shows.
	g.stream, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: g.name, Subjects: []string{g.name}, Duplicates: 100 * time.Millisecond, Storage: jetstream.FileStorage,
	})
	g.must(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = js.DeleteStream(ctx, g.name) // a broker of the test's own may be gone
	})
	return g
}

func (g *rig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) record(key, body string) outbox.Record {
	r := outbox.Record{
		ID: outbox.NewID(), Transport: "default", Type: "test.made.v1", CreatedAt: time.Now(),
		Message: outbox.Message{Destination: g.name, Body: []byte(body), Event: outbox.Event{Source: "/chaos"}},
	}
	if key != "" {
		r.Message.Key = []byte(key)
	}
	return r
}

// placing is one transaction of a producer.
type placing struct {
	key      string // "": none, and the orders have number 0
	orders   int
	due      time.Duration // if not 0, until the message may be delivered
	open     time.Duration // between the last statement and the end
	while    func() error  // called then
	rollback bool
}

// place writes orders and their messages in a transaction that locks its key's
// row first and draws the key's next numbers.
func (g *rig) place(ctx context.Context, p placing) error {
	limit := 10 * time.Second
	if p.while != nil {
		limit += patience
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var last int64
	if p.key != "" {
		err = tx.QueryRowContext(ctx, `INSERT INTO counters (k, n) VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET n = counters.n + $2 RETURNING n`, p.key, p.orders).Scan(&last)
		if err != nil {
			return err
		}
	}
	var recs []outbox.Record
	for i := range p.orders {
		n := max(0, last-int64(p.orders-1-i))
		r := g.record(p.key, fmt.Sprintf("%s/%d", p.key, n))
		var at int64
		if p.due > 0 {
			r.Message.DeliverAt = time.Now().Add(p.due)
			at = r.Message.DeliverAt.UnixMicro()
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, k, n, due) VALUES ($1, $2, $3, $4)`, r.ID.String(), p.key, n, at); err != nil {
			return err
		}
		recs = append(recs, r)
	}
	if err := g.store.Enlist(ctx, tx, recs...); err != nil {
		return err
	}
	time.Sleep(p.open)
	if p.while != nil {
		if err := p.while(); err != nil {
			return err
		}
	}
	if p.rollback {
		return nil
	}
	g.mu.Lock()
	for _, r := range recs {
		g.committing[r.ID.String()] = time.Now()
	}
	g.mu.Unlock()
	if err := tx.Commit(); err != nil {
		g.mu.Lock()
		g.unanswered++
		g.mu.Unlock()
		return err
	}
	return nil
}

// placeLate is the case that inverts keys, for certain: a message is in the stream
// before one of its lane commits that drew its position earlier, and the key of
// that one goes on. Nothing else is on its way.
func (g *rig) placeLate() {
	g.t.Helper()
	ctx := g.t.Context()
	routes, err := g.store.Routes(ctx)
	g.must(err)
	lane := func(key string) outbox.Lane { return outbox.LaneOf(routes[0], outbox.ID{}, []byte(key)) }
	one, other := "late", ""
	for i := 0; other == ""; i++ {
		if k := fmt.Sprint("late ", i); lane(k) == lane(one) {
			other = k
		}
	}
	g.must(g.place(ctx, placing{key: one, orders: 1, while: func() error {
		if err := g.place(ctx, placing{key: other, orders: 1}); err != nil {
			return err
		}
		if !g.settled(patience) {
			return fmt.Errorf("%d rows still pending after %v", g.pending(), patience)
		}
		return nil
	}}))
	g.must(g.place(ctx, placing{key: one, orders: 1}))
}

// produce lets producers place orders until ctx ends, each about every pause. A
// third of the transactions stay open for a while, one in 200 for long; one in
// ten places many orders; one in 20 is rolled back. Errors are the outages that the test makes: the database
// knows what was committed.
func (g *rig) produce(ctx context.Context, producers, keys int, pause time.Duration) (wait func()) {
	var wg sync.WaitGroup
	for range producers {
		wg.Go(func() {
			for ctx.Err() == nil {
				p := placing{key: fmt.Sprint("k", rand.IntN(keys)), orders: 1, rollback: rand.IntN(20) == 0}
				switch n := rand.IntN(600); {
				case n < 3:
					p.open = 500 * time.Millisecond
				case n < 200:
					p.open = time.Duration(1+rand.IntN(30)) * time.Millisecond
				}
				switch rand.IntN(10) {
				case 0:
					p.key = ""
				case 1:
					p.key, p.due = "", time.Duration(1+rand.IntN(3000))*time.Millisecond
				case 2:
					p.orders = 2 + rand.IntN(18)
				}
				d := time.Duration(rand.Int64N(2 * int64(pause)))
				// An order that was begun is finished: only faults leave some open.
				if err := g.place(context.WithoutCancel(ctx), p); err != nil {
					d = max(d, 20*time.Millisecond)
				}
				sleep(ctx, d)
			}
		})
	}
	return wg.Wait
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// scalar asks the database for a number; -1 if it cannot be asked now.
func (g *rig) scalar(query string, args ...any) (n int64) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return -1
	}
	return n
}

func (g *rig) pending() int64 {
	return g.scalar(`SELECT (SELECT count(*) FROM postrider_outbox) + (SELECT count(*) FROM postrider_deferred)`)
}

// settled waits until nothing is pending and tells whether that came about.
func (g *rig) settled(limit time.Duration) bool {
	for end := time.Now().Add(limit); g.pending() != 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (g *rig) stored() int64 {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	info, err := g.stream.Info(ctx)
	if err != nil {
		return -1
	}
	return int64(info.State.Msgs)
}

// truth reads what the tables and the stream say.
func (g *rig) truth() truth {
	g.t.Helper()
	r := truth{
		pending: g.pending(),
		dead:    g.scalar(`SELECT count(*) FROM postrider_dead`),
		parked:  g.scalar(`SELECT count(*) FROM postrider_parked_keys`),
		// A relay that was late to renew has begun anew under another owner, and
		// leaves to time what the last one had.
		owned: g.scalar(`SELECT count(*) FROM postrider_lanes l JOIN postrider_relays r ON r.owner = l.owner
 WHERE r.ended = 0 AND r.expires_at > $1`, g.stopping.Add(ttl/2).UnixMicro()),
		orders: map[string]order{}, committing: g.committing,
	}
	rows, err := g.db.Query(`SELECT id, k, n, due FROM orders`)
	g.must(err)
	defer rows.Close()
	for rows.Next() {
		var id string
		var o order
		g.must(rows.Scan(&id, &o.key, &o.n, &o.due))
		r.orders[id] = o
	}
	g.must(rows.Err())
	if n := g.stored(); n > 0 {
		r.stream = g.messages(int(n))
	}
	return r
}

func (g *rig) messages(n int) (all []stored) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := g.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	g.must(err)
	for len(all) < n {
		batch, err := c.Fetch(min(500, n-len(all)), jetstream.FetchMaxWait(5*time.Second))
		g.must(err)
		for m := range batch.Messages() {
			s, err := parse(m)
			g.must(err)
			all = append(all, s)
		}
		g.must(batch.Error())
		g.must(ctx.Err())
	}
	return all
}

func parse(m jetstream.Msg) (s stored, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return s, err
	}
	h := m.Headers()
	key, number, ok := strings.Cut(string(m.Data()), "/")
	lane, err1 := strconv.ParseInt(h.Get("Postrider-Lane"), 10, 64)
	pos, err2 := strconv.ParseInt(h.Get("Postrider-Pos"), 10, 64)
	n, err3 := strconv.ParseInt(number, 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil || !ok {
		return s, fmt.Errorf("message %d of the stream, %q: %w", meta.Sequence.Stream, m.Data(), err)
	}
	return stored{id: h.Get(jetstream.MsgIDHeader), key: key, n: n, lane: lane, pos: pos, at: meta.Timestamp}, nil
}

// relayed is a relay process and its supervisor, as an init system would be:
// what ends is started again.
type relayed struct {
	g     *rig
	args  []string
	label string
	done  chan struct{}

	mu       sync.Mutex
	p        *process
	expected bool          // its end
	pause    time.Duration // before the next start
	ending   bool
	starts   int
	tries    int // starts that failed: database or broker was away
}

func (g *rig) relay(label string, args ...string) *relayed {
	s := &relayed{g: g, label: label, args: append([]string{"run", "--stream", g.name}, args...), done: make(chan struct{})}
	go s.supervise()
	g.t.Cleanup(func() {
		s.mu.Lock()
		s.ending = true
		p := s.p
		s.mu.Unlock()
		if p != nil {
			p.kill()
		}
		<-s.done
	})
	return s
}

func (s *relayed) supervise() {
	defer close(s.done)
	for {
		s.mu.Lock()
		if s.ending {
			s.mu.Unlock()
			return
		}
		cmd := exec.Command(binary, s.args...)
		cmd.Env = []string{"HOME=" + os.TempDir()}
		p, err := s.g.spawn.start(cmd)
		s.p, s.expected = p, false
		s.starts++
		s.mu.Unlock()
		if err != nil {
			s.g.t.Errorf("%s: %v", s.label, err)
			return
		}
		<-p.ended
		log := p.log.String()
		keepLog(s.g.t, s.label, log)
		for _, bad := range []string{"DATA RACE", "panic:", "fatal error:", "panicked"} {
			if strings.Contains(log, bad) {
				s.g.t.Errorf("%s: its log has %q:\n%s", s.label, bad, tail(log))
			}
		}
		s.mu.Lock()
		pause := s.pause
		s.pause = 0
		switch {
		case s.expected, s.ending:
		case started(p):
			s.g.t.Errorf("%s ended by itself (%v):\n%s", s.label, p.cmd.ProcessState, tail(log))
		default:
			s.tries++
			pause = max(pause, 100*time.Millisecond)
		}
		s.mu.Unlock()
		time.Sleep(pause)
	}
}

func started(p *process) bool { return strings.Contains(p.log.String(), "relay started") }

// current waits for a relay at work; nil if there is none for long.
func (s *relayed) current(limit time.Duration) *process {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		p := s.p
		s.mu.Unlock()
		if p != nil && p.running() && started(p) {
			return p
		}
	}
	return nil
}

// expect notes that p ends soon, and how long to wait before the next start.
func (s *relayed) expect(p *process, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.p == p {
		s.expected, s.pause = true, pause
	}
}

// stop ends the relay for good, cleanly, and tells how long that took.
func (s *relayed) stop(limit time.Duration) (took time.Duration, err error) {
	p := s.current(patience)
	if p == nil {
		return 0, fmt.Errorf("%s does not run", s.label)
	}
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	begun := time.Now()
	s.g.mu.Lock()
	if s.g.stopping.IsZero() {
		s.g.stopping = begun
	}
	s.g.mu.Unlock()
	if err := p.signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	if !p.within(limit) {
		return limit, fmt.Errorf("%s did not stop within %v:\n%s", s.label, limit, tail(p.log.String()))
	}
	<-s.done
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return 0, fmt.Errorf("%s ended with %d:\n%s", s.label, code, tail(p.log.String()))
	}
	return time.Since(begun), nil
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// keepLog appends a log to a file of the directory in POSTRIDER_TEST_LOGS, if set.
func keepLog(t *testing.T, label, log string) {
	dir := os.Getenv("POSTRIDER_TEST_LOGS")
	if dir == "" {
		return
	}
	f, err := os.OpenFile(dir+"/"+strings.ReplaceAll(t.Name()+" "+label, "/", "_")+".log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(log)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}
