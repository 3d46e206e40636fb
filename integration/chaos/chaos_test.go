//go:build prove && linux

package chaos_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/testenv"
)

const (
	ttl    = 2 * time.Second
	grace  = 3 * time.Second
	relays = 3
	// A replaced relay may meet a database that does not answer: beyond the
	// grace it cancels its sends, gives outcomes and leases 5 s each, and waits 2 s
	// for its connections.
	mostStop = grace + 15*time.Second
	// A fault waits so long for its target, which other faults may keep from
	// starting for seconds.
	reach = time.Minute
)

// chaos is one run: relays, each behind lines of its own to a database and a
// broker that belong to the run.
type chaos struct {
	*rig
	cluster  *testenv.Cluster
	broker   *broker
	relays   []*relayed
	lines    map[target][]*proxy // by relay
	mu       sync.Mutex
	happened map[string]int
}

// seeded is the seed in POSTRIDER_TEST_SEED, else a new one.
func seeded(t *testing.T) uint64 {
	s := os.Getenv("POSTRIDER_TEST_SEED")
	if s == "" {
		return uint64(time.Now().UnixNano())
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("POSTRIDER_TEST_SEED is %q: use a whole number", s)
	}
	return n
}

func proving() bool { return os.Getenv("POSTRIDER_PROVE") == "1" }

// TestChaos lets everything go wrong at once, for 40 s, or ten minutes with
// POSTRIDER_PROVE=1. When the faults are over nothing may be lost, made up,
// dead, left or out of its key's order, and the relays stop cleanly.
func TestChaos(t *testing.T) {
	t.Parallel()
	length := 40 * time.Second
	if proving() {
		length = 10 * time.Minute
		if end, ok := t.Deadline(); ok && time.Until(end) < length+3*patience {
			t.Fatalf("%v of faults do not fit before the deadline of the test binary: run go test -timeout 30m", length)
		}
	}
	seed := seeded(t)
	plan := newPlan(seed, length, relays)
	var text strings.Builder
	for _, f := range plan {
		fmt.Fprintln(&text, f)
	}
	t.Logf("POSTRIDER_TEST_SEED=%d, %d faults:\n%s", seed, len(plan), &text)

	c := newChaos(t)
	c.placeLate()
	ctx, endOrders := context.WithCancel(t.Context())
	produced := c.produce(ctx, 10, 40, 15*time.Millisecond)
	for i, s := range c.relays {
		if s.current(patience) == nil {
			t.Fatalf("relay %d does not start", i)
		}
	}
	c.run(plan)
	endOrders()
	produced()

	begun := time.Now()
	drained := c.settled(patience)
	t.Logf("drained %v after the last fault", time.Since(begun).Round(time.Millisecond))
	if !drained {
		t.Errorf("%d rows still pending %v after the last fault", c.pending(), patience)
	}
	c.stopAll()
	v := judge(c.truth())
	restarts, tries := 0, 0
	for _, s := range c.relays {
		restarts, tries = restarts+s.starts, tries+s.tries
	}
	t.Log(v)
	t.Logf("%d lanes taken over in all, %d starts of relays (%d met no database or broker), %d commits without an answer",
		c.scalar(`SELECT sum(epoch) FROM postrider_lanes`), restarts, tries, c.unanswered)
	for _, f := range v.faults {
		t.Error(f)
	}
	if v.late == 0 {
		t.Error("no message was committed late: the run did not meet the case that inverts keys")
	}
	for _, k := range kinds {
		if n := c.happened[k.name]; n == 0 {
			t.Errorf("%s never happened", k.name)
		} else {
			t.Logf("%4d %s", n, k.name)
		}
	}
	if left := withMark(t, c.name); len(left) > 0 {
		t.Errorf("processes %v outlived their relays", left)
	}
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	spawn := newSpawner(t)
	cluster := testenv.PrivatePostgres(t)
	b := newBroker(t, spawn)
	c := &chaos{
		rig: newRig(t, spawn, cluster.URL, b.url()), cluster: cluster, broker: b,
		lines: map[target][]*proxy{}, happened: map[string]int{},
	}
	for i := range relays {
		u, err := url.Parse(cluster.URL)
		c.must(err)
		db, broker := newProxy(t, u.Host), newProxy(t, b.addr)
		c.lines[databaseLine] = append(c.lines[databaseLine], db)
		c.lines[brokerLine] = append(c.lines[brokerLine], broker)
		u.Host = db.addr()
		// 100 attempts are out of reach for a message that every fault of a long
		// run meets, and not for one whose attempts an outage burns.
		c.relays = append(c.relays, c.relay(fmt.Sprint("relay ", i), "--db", u.String(), "--nats", "nats://"+broker.addr(),
			"--ttl", ttl.String(), "--grace", grace.String(), "--poll", "100ms", "--backoff-max", "1s", "--max-attempts", "100", "--log-level", logLevel()))
	}
	return c
}

func logLevel() string {
	if os.Getenv("POSTRIDER_TEST_LOGS") != "" {
		return "debug"
	}
	return "info"
}

// run runs the plan and returns when its last fault is over.
func (c *chaos) run(plan []fault) {
	var wg sync.WaitGroup
	begun := time.Now()
	locks := map[string]*sync.Mutex{} // what takes longer than planned delays the next fault of its target
	for _, f := range plan {
		time.Sleep(time.Until(begun.Add(f.at)))
		at := fmt.Sprint(f.kind.target, f.relay)
		switch f.kind.target {
		case database, broke:
			at = string(f.kind.target)
		case databaseLine, brokerLine:
			at = "" // they last as long as planned
		}
		lock := locks[at]
		if lock == nil || at == "" {
			lock = &sync.Mutex{}
			locks[at] = lock
		}
		wg.Go(func() {
			lock.Lock()
			defer lock.Unlock()
			if f.kind.do(c, f) {
				c.mu.Lock()
				c.happened[f.kind.name]++
				c.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func (c *chaos) stopAll() {
	var wg sync.WaitGroup
	for _, s := range c.relays {
		wg.Go(func() {
			if took, err := s.stop(grace); err != nil {
				c.t.Error(err)
			} else {
				c.t.Logf("%s stopped cleanly in %v", s.label, took.Round(time.Millisecond))
			}
		})
	}
	wg.Wait()
}

func (c *chaos) sigkill(f fault) bool {
	s := c.relays[f.relay]
	p := s.current(reach)
	if p == nil {
		return false
	}
	s.expect(p, f.lasts)
	p.kill()
	w, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && w.Signal() == syscall.SIGKILL
}

func (c *chaos) sigstop(f fault) bool {
	p := c.relays[f.relay].current(reach)
	if p == nil || p.signal(syscall.SIGSTOP) != nil {
		return false
	}
	time.Sleep(f.lasts)
	stopped := p.stopped()
	return p.signal(syscall.SIGCONT) == nil && stopped
}

// replace stops a relay cleanly, as a deployment does, whatever else is broken
// at the time.
func (c *chaos) replace(f fault) bool {
	s := c.relays[f.relay]
	p := s.current(reach)
	if p == nil {
		return false
	}
	s.expect(p, 0)
	if p.signal(syscall.SIGTERM) != nil {
		return false
	}
	if !p.within(mostStop) {
		c.t.Errorf("%s did not stop within %v of SIGTERM:\n%s", s.label, mostStop, tail(p.log.String()))
		p.kill()
		return false
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 && !strings.Contains(p.log.String(), "whose outcome is not written") {
		c.t.Errorf("%s ended with %d after SIGTERM:\n%s", s.label, code, tail(p.log.String()))
	}
	return true
}

func restartDatabase(mode string) func(*chaos, fault) bool {
	return func(c *chaos, f fault) bool {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := c.cluster.Stop(ctx, mode)
		time.Sleep(f.lasts)
		if err == nil {
			err = c.cluster.Start(ctx)
		}
		if err != nil {
			c.t.Error(err)
		}
		return err == nil
	}
}

func (c *chaos) terminate(fault) bool {
	for end := time.Now().Add(reach); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c.scalar(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'postrider%'`) > 0 {
			return true
		}
	}
	return false
}

func (c *chaos) restartBroker(f fault) bool {
	c.broker.kill()
	time.Sleep(f.lasts)
	if err := c.broker.start(); err != nil {
		c.t.Error(err)
		return false
	}
	return true
}

func (c *chaos) stopBroker(f fault) bool {
	p := c.broker.p
	if p.signal(syscall.SIGSTOP) != nil {
		return false
	}
	time.Sleep(f.lasts)
	stopped := p.stopped()
	return p.signal(syscall.SIGCONT) == nil && stopped
}

// lineFault breaks one relay's line, or all at once. It happened if it was
// felt: a connection was cut, or bytes were held, slowed or lost.
func lineFault(what string) func(*chaos, fault) bool {
	return func(c *chaos, f fault) bool {
		var hit []*proxy
		for i, p := range c.lines[f.kind.target] {
			if f.relay == all || f.relay == i {
				hit = append(hit, p)
			}
		}
		felt := func() (n int) {
			for _, p := range hit {
				n += p.happened(what)
			}
			return n
		}
		before := felt()
		for _, p := range hit {
			switch what {
			case "cut":
				p.cut(true)
			case "held":
				p.hold()
			case "slow":
				p.slow(f.lasts / 20)
			}
		}
		// A process may be stopped, or its connections gone or dead, at this moment:
		// the fault lasts until it is felt.
		time.Sleep(f.lasts)
		for end := time.Now().Add(reach); felt() == before && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if what == "half-open" {
				for _, p := range hit {
					p.halfOpen()
				}
			}
		}
		for _, p := range hit {
			p.heal()
		}
		return felt() > before
	}
}
