//go:build prove && linux

package chaos_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/natstransport"
)

// TestKillsUnderLoad kills a relay twenty times while messages wait and flow. A
// death of the process is not the fault of what it was sending: with the
// default of ten attempts nothing is given up.
func TestKillsUnderLoad(t *testing.T) {
	t.Parallel()
	const kills, load = 20, 100
	seed := seeded(t)
	t.Logf("POSTRIDER_TEST_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	db, nats := testenv.Postgres(t), testenv.NATS(t)
	g := newRig(t, newSpawner(t), db, nats)
	args := []string{"--db", db, "--nats", nats, "--ttl", "1s", "--poll", "50ms", "--backoff-max", "1s", "--log-level", logLevel()}
	fleet := []*relayed{g.relay("relay 0", args...), g.relay("relay 1", args...)}
	ctx, endOrders := context.WithCancel(t.Context())
	defer endOrders()
	produced := g.produce(ctx, 10, 40, 10*time.Millisecond)

	attempts := int64(0) // the most that a pending message had spent
	var waiting []int64
	for i := range kills {
		s := fleet[rng.IntN(len(fleet))]
		p := s.current(patience)
		if p == nil {
			t.Fatalf("%s does not start", s.label)
		}
		// Some work first, then a kill in the midst of it.
		goal, end := g.stored()+int64(20+rng.IntN(400)), time.Now().Add(patience)
		for g.stored() < goal || g.pending() < load {
			if time.Now().After(end) {
				t.Fatalf("after %d kills: %d rows pending, %d messages in the stream, no load of %d to kill under", i, g.pending(), g.stored(), load)
			}
			time.Sleep(time.Millisecond)
		}
		s.expect(p, time.Duration(rng.IntN(300))*time.Millisecond)
		p.kill()
		waiting = append(waiting, g.pending())
		attempts = max(attempts, g.scalar(`SELECT COALESCE(max(attempts), 0) FROM (SELECT attempts FROM postrider_outbox UNION ALL SELECT attempts FROM postrider_deferred) x`))
	}
	endOrders()
	produced()
	if !g.settled(patience) {
		t.Errorf("%d rows still pending after %v", g.pending(), patience)
	}
	for _, s := range fleet {
		if _, err := s.stop(patience); err != nil {
			t.Error(err)
		}
	}
	v := judge(g.truth())
	t.Logf("%d kills, at %v rows pending; most attempts %d; %v", kills, waiting, attempts, v)
	for _, f := range v.faults {
		t.Error(f)
	}
	if v.duplicates == 0 {
		t.Error("no message came twice: the kills hit nothing that was on its way")
	}
}

// killer is the body of a message that no process survives sending.
const killer = "killer/1"

// killable is a transport that dies of the marked message, what stands before
// it in the batch being on its way.
type killable struct{ *natstransport.Transport }

func (k killable) Send(ctx context.Context, ds []*transport.Delivery) {
	i := slices.IndexFunc(ds, func(d *transport.Delivery) bool { return string(d.Record.Message.Body) == killer })
	if i < 0 {
		k.Transport.Send(ctx, ds)
		return
	}
	go k.Transport.Send(ctx, ds[:i])
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	os.Exit(137)
}

const killableAttempts = 3

// runKillable is the program of the role "relay".
func runKillable(dsn, nats string, park bool) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	st, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		return err
	}
	nc, err := natsgo.Connect(nats, natstransport.ConnectOptions()...)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	inner, err := natstransport.New(js, nil)
	if err != nil {
		return err
	}
	opts := &relay.Options{TTL: time.Second, PollMax: 50 * time.Millisecond, MaxAttempts: killableAttempts, BackoffMax: time.Second}
	if park {
		opts.Poison = relay.ParkKey
	}
	r, err := relay.New(st, map[string]transport.Transport{"default": killable{inner}}, opts)
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// TestKiller has one message among a thousand that kills whatever process sends
// it. It ends as poison does, and takes nothing else with it.
func TestKiller(t *testing.T) {
	t.Parallel()
	for _, park := range []bool{false, true} {
		t.Run(map[bool]string{false: "dead letter", true: "park key"}[park], func(t *testing.T) {
			t.Parallel()
			db, nats := testenv.Postgres(t), testenv.NATS(t)
			g := newRig(t, newSpawner(t), db, nats)
			const messages, keys, at = 1000, 25, 400
			var bad outbox.ID
			for i := range messages {
				if i == at {
					bad = g.poison("k7")
					continue
				}
				key := fmt.Sprint("k", i%keys)
				if i%keys == keys-1 {
					key = ""
				}
				g.must(g.place(t.Context(), placing{key: key, orders: 1}))
			}
			policy := map[bool]string{true: "park"}[park]
			deaths := g.dying(2, policy, db, nats, func() bool {
				return g.scalar(`SELECT (SELECT count(*) FROM postrider_dead) + (SELECT count(*) FROM postrider_parked_keys)`) > 0 &&
					g.scalar(`SELECT (SELECT count(*) FROM postrider_outbox) + (SELECT count(*) FROM postrider_deferred WHERE due_at IS NOT NULL)`) == 0
			})
			if deaths != 1+killableAttempts {
				t.Errorf("%d processes died, want the first and one for each of %d attempts", deaths, killableAttempts)
			}
			r := g.truth()
			v := judge(truth{orders: r.orders, stream: r.stream})
			t.Logf("%d deaths; %v; %d dead letters, %d keys parked, %d rows pending", deaths, v, r.dead, r.parked, r.pending)
			if park {
				g.parkedBehind(bad, r)
				return
			}
			for _, f := range v.faults {
				t.Error(f)
			}
			if r.dead != 1 || r.parked != 0 || r.pending != 0 || g.scalar(`SELECT count(*) FROM postrider_dead WHERE id = $1 AND attempts = $2`, bad.String(), killableAttempts) != 1 {
				t.Errorf("dead letters %d, parked keys %d, pending %d: want the killer alone, dead after %d attempts", r.dead, r.parked, r.pending, killableAttempts)
			}
		})
	}
}

// poison enlists the killer under a key, without an order: nobody may find it
// delivered.
func (g *rig) poison(key string) outbox.ID {
	g.t.Helper()
	r := g.record(key, killer)
	tx, err := g.db.BeginTx(g.t.Context(), nil)
	g.must(err)
	defer tx.Rollback()
	g.must(g.store.Enlist(g.t.Context(), tx, r))
	g.must(tx.Commit())
	return r.ID
}

// dying keeps n killable relays running until done, and counts how many died
// of a message.
func (g *rig) dying(n int, policy, db, nats string, done func() bool) (deaths int) {
	exe, err := os.Executable()
	g.must(err)
	var mu sync.Mutex
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range n {
		wg.Go(func() {
			for {
				cmd := exec.Command(exe)
				cmd.Env = append(os.Environ(), roleEnv+"=relay", "CHAOS_DB="+db, "CHAOS_NATS="+nats, "CHAOS_POISON="+policy)
				p, err := g.spawn.start(cmd)
				if err != nil {
					g.t.Error(err)
					return
				}
				select {
				case <-stop:
					p.kill()
					return
				case <-p.ended:
				}
				if code := p.cmd.ProcessState.ExitCode(); code != 137 {
					g.t.Errorf("a relay ended with %d: %s", code, tail(p.log.String()))
					return
				}
				mu.Lock()
				deaths++
				mu.Unlock()
			}
		})
	}
	for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			g.t.Errorf("after %v: %d rows pending, %d dead letters", patience, g.pending(), g.scalar(`SELECT count(*) FROM postrider_dead`))
			break
		}
	}
	close(stop)
	wg.Wait()
	return deaths
}

// parkedBehind checks that the killer's key is parked, with the killer first and
// the key's later messages behind it, and that everything else is out.
func (g *rig) parkedBehind(bad outbox.ID, r truth) {
	g.t.Helper()
	if r.dead != 0 || r.parked != 1 {
		g.t.Errorf("%d dead letters and %d keys parked, want the killer's key parked alone", r.dead, r.parked)
	}
	rows, err := g.db.Query(`SELECT id, attempts, convert_from(ordering_key, 'UTF8') FROM postrider_deferred ORDER BY pos`)
	g.must(err)
	defer rows.Close()
	waits := map[string]bool{}
	for first := true; rows.Next(); first = false {
		var id, key string
		var attempts int
		g.must(rows.Scan(&id, &attempts, &key))
		waits[id] = true
		if key != "k7" || first != (id == bad.String()) || first && attempts != killableAttempts {
			g.t.Errorf("parked: %s of key %s with %d attempts; want the killer, then its key's later messages", id, key, attempts)
		}
	}
	g.must(rows.Err())
	out := map[string]bool{}
	for _, m := range r.stream {
		out[m.id] = true
	}
	for id, o := range r.orders {
		if out[id] == waits[id] {
			g.t.Errorf("%s (%s/%d): delivered %v, parked %v", id, o.key, o.n, out[id], waits[id])
		}
		if o.key == "k7" && waits[id] != (o.n > 16) {
			g.t.Errorf("k7/%d: parked %v, want what came after the killer", o.n, waits[id])
		}
	}
	for _, f := range judge(truth{orders: r.orders, stream: r.stream}).faults {
		if !strings.Contains(f, "lost") {
			g.t.Error(f)
		}
	}
}
