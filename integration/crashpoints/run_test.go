//go:build prove

package crashpoints_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/transport"
)

type fault uint8

const (
	none       fault = iota
	killBefore       // the process ends before the statement or the send
	killAfter        // it ends when the commit, or the broker, has taken effect
	cutBefore        // the connection is lost before
	cutAfter         // it is lost with the answer
)

func (f fault) String() string {
	return [...]string{"no fault", "kill before", "kill after", "cut before", "cut after"}[f]
}

// point is a moment in the life of one relay: a broker call, its nth statement
// of a kind, or for those that are issued all the time, the first one in step n
// of the scenario. Polls that find everything as it was are the same moment.
type point struct {
	relay, name string
	n           int
}

func (p point) String() string { return fmt.Sprintf("%s %s #%d", p.relay, p.name, p.n) }

type aim struct {
	point
	fault fault
}

// is tells whether a strikes at p: an aim of no relay strikes at the first point
// of its name.
func (a aim) is(p point) bool { return a.point == p || a.relay == "" && a.name == p.name }

func (a aim) String() string { return fmt.Sprintf("%s: %s", a.point, a.fault) }

const deadline = 2 * time.Minute // for one scenario, on a busy machine

// ttl is the shortest there is; with the race detector relays are too slow for
// it as soon as the machine has anything else to do.
func ttl() time.Duration {
	if testenv.Race {
		return 3 * time.Second
	}
	return time.Second
}

var routes = []outbox.Route{{Name: "default", Ordered: 2, Unordered: 1}}

// run is one pass through the scenario.
type run struct {
	bed    *bed
	aim    aim
	breach breach
	broker *broker
	began  time.Time

	mu        sync.Mutex
	state     int // counts what lasting has happened
	step      int // of the scenario
	messages  int // delivered so far
	met       map[point]bool
	fired     bool
	lines     []string
	killed    int
	lapses    int // leases that ended against the relays' will, as far as one noticed
	slow      bool
	owners    map[outbox.ID]*process
	unclean   map[[2]int64]bool // lanes and epochs
	final     bool              // nothing is left to do but to stop
	relays    []*process
	committed []outbox.ID
	names     map[outbox.ID]string
	order     map[string][]string // bodies by key
	crashed   chan *process
}

func newRun(b *bed, a aim, br breach) *run {
	r := &run{
		bed: b, aim: a, breach: br, began: time.Now(), met: map[point]bool{}, names: map[outbox.ID]string{},
		order: map[string][]string{}, crashed: make(chan *process, 8),
		owners: map[outbox.ID]*process{}, unclean: map[[2]int64]bool{},
	}
	r.broker = newBroker(r)
	return r
}

func (r *run) log(format string, args ...any) {
	line := fmt.Sprintf("%6d ms  ", time.Since(r.began).Milliseconds()) + fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// moved notes that something lasting has happened.
func (r *run) moved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state++
}

// next is the next step of the scenario.
func (r *run) next(what string) {
	r.mu.Lock()
	r.state++
	r.step++
	n := r.step
	r.mu.Unlock()
	r.log("step %d: %s", n, what)
}

// owns notes whose id an owner is: a process with a second one has lost its
// leases in between.
func (r *run) owns(p *process, id outbox.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owners[id] != nil || p.dead.Load() {
		return
	}
	r.owners[id], p.last = p, id
	if p.windows++; p.windows > 1 {
		r.lapses++
		r.slow = true
		r.state++
	}
}

// granted notes the lanes whose last owner, beside the one of crash, did not
// give them back.
func (r *run) granted(p *process, g outbox.LaneGrant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range g.Leases {
		if at := [2]int64{int64(l.Lane), l.Epoch}; l.Unclean && l.Epoch > 2 && !r.unclean[at] {
			r.unclean[at] = true
			r.lapses++
			r.lines = append(r.lines, fmt.Sprintf("%6d ms  %s: lane %d, epoch %d, was not given back (tried to %d)", time.Since(r.began).Milliseconds(), p.name, l.Lane, l.Epoch, l.TriedTo))
		}
	}
}

// at numbers a point and says which fault strikes there. lasting: it takes
// effect by itself, so that there is an after.
func (r *run) at(p *process, name string, lasting bool) (f fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := p.counts[name]
	if c == nil {
		c = &count{}
		p.counts[name] = c
	}
	// What a relay does when there is something to do is told apart by every
	// change; reads, which it does all the time, by how far the scenario is; the
	// rest, of which most finds nothing to do, by its step.
	verb, _, _ := strings.Cut(name, "/")
	switch {
	case verb == "settle" || strings.HasPrefix(verb, "send "):
		c.count(r.state)
	case verb == "read" || verb == "sweep" || verb == "read keys":
		c.count(r.step<<16 | r.messages/4)
	default:
		c.n = r.step
	}
	pt := point{p.name, name, c.n}
	if !r.fired {
		r.met[pt] = r.met[pt] || lasting
	}
	if !r.fired && r.aim.is(pt) && (lasting || r.aim.fault == killBefore || r.aim.fault == cutBefore) {
		r.fired = true
		r.aim.point = pt
		f = r.aim.fault
	}
	line := fmt.Sprintf("%6d ms  %s", time.Since(r.began).Milliseconds(), pt)
	if f != none {
		line += "  <== " + f.String()
	}
	r.lines = append(r.lines, line)
	return f
}

// missed takes a fault back whose statement failed by itself.
func (r *run) missed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fired = false
}

type count struct{ n, state int }

func (c *count) count(state int) {
	if c.n == 0 || c.state != state {
		c.n++
		c.state = state
	}
}

// process is a relay that can be killed.
type process struct {
	r       *run
	name    string
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // of Run; after done
	dead    atomic.Bool
	counts  map[string]*count // under the run's lock
	windows int               // the same
	last    outbox.ID         // the same
	lanes   atomic.Int32

	mu    sync.Mutex
	conns map[*line]bool
}

func (p *process) adopt(c *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

func (p *process) disown(c *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *process) connections() []*line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.conns))
}

// kill ends the process where it stands: nothing of it reaches the database or
// the broker any more, except what the engine is doing already.
func (p *process) kill() {
	if p.dead.Swap(true) {
		return
	}
	p.r.mu.Lock()
	p.r.killed++
	p.r.mu.Unlock()
	p.r.broker.forget(p)
	p.cancel()
	for _, c := range p.connections() {
		// Who holds it is about to return and closes it then.
		if c.mu.TryLock() {
			c.end()
			c.mu.Unlock()
		}
	}
	p.r.crashed <- p
}

// owner is the id under which the process holds lanes.
func (p *process) owner() outbox.ID {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	return p.last
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// newProcess is a process of the next name.
func newProcess(r *run, cancel func()) *process {
	p := &process{
		r: r, cancel: cancel, done: make(chan struct{}), counts: map[string]*count{}, conns: map[*line]bool{},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.name = string(rune('A' + len(r.relays)))
	r.relays = append(r.relays, p)
	return p
}

// start begins a relay process of the next name.
func (r *run) start() (*process, error) {
	ctx, cancel := context.WithCancel(context.Background())
	p := newProcess(r, cancel)
	store, hang, err := r.bed.open(p)
	if err != nil {
		cancel()
		return nil, err
	}
	rl, err := relay.New(tapped{store, p}, map[string]transport.Transport{"default": &wire{p, r.breach}}, &relay.Options{
		TTL: ttl(), PollMin: 10 * time.Millisecond, PollMax: 150 * time.Millisecond,
		BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond, Grace: 5 * time.Second,
		Hooks: relay.Hooks{
			Lanes: func(held []outbox.LaneLease) {
				p.lanes.Store(int32(len(held)))
				if !p.dead.Load() {
					r.log("%s: holds %d lanes", p.name, len(held))
				}
			},
			LeaseLost: func(l outbox.LaneLease, reason string) {
				if !p.dead.Load() {
					r.log("%s: lost lane %d, epoch %d: %s", p.name, l.Lane, l.Epoch, reason)
				}
			},
			Store: func(err error) {
				if !p.dead.Load() {
					r.log("%s: store: %v", p.name, err)
				}
			},
			Trouble: func(err error) {
				if !p.dead.Load() {
					r.log("%s: trouble: %v", p.name, err)
				}
			},
		},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	r.log("%s: starts", p.name)
	go func() {
		defer close(p.done)
		p.err = rl.Run(ctx)
		hang()
	}()
	return p, nil
}

func (r *run) live() (ps []*process) {
	for _, p := range r.relays {
		if !p.dead.Load() && !p.ended() {
			ps = append(ps, p)
		}
	}
	return ps
}

// await waits for cond, and starts a relay when there is none. Meanwhile every
// committed message has to be somewhere.
func (r *run) await(what string, cond func() (bool, error)) error {
	for looked := time.Now(); ; {
		select {
		case p := <-r.crashed:
			r.log("%s is dead", p.name)
			if err := r.accounted(); err != nil {
				return fmt.Errorf("after the kill: %w", err)
			}
			continue
		default:
		}
		if len(r.live()) == 0 && !r.final {
			if _, err := r.start(); err != nil {
				return err
			}
		}
		ok, err := cond()
		if ok || err != nil {
			return err
		}
		if time.Since(looked) > 300*time.Millisecond {
			looked = time.Now()
			if err := r.accounted(); err != nil {
				return err
			}
		}
		if time.Since(r.began) > deadline {
			return fmt.Errorf("no progress: waited until %v for %s", deadline, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// record is a message; its key is the letter before its number, u has none.
func (r *run) record(body string) outbox.Record {
	rec := outbox.Record{
		ID: outbox.NewID(), Transport: "default", Type: "test.v1", CreatedAt: time.Now(),
		Message: outbox.Message{Destination: "d", Body: []byte(body), Event: outbox.Event{Source: "/test"}},
	}
	if key := strings.TrimRight(body, "0123456789"); key != "u" {
		rec.Message.Key = []byte(key)
	}
	if body == "s1" {
		rec.Message.DeliverAt = time.Now().Add(200 * time.Millisecond)
	}
	return rec
}

// enlist writes messages in a transaction that the caller ends.
func (r *run) enlist(bodies ...string) (commit, rollback func() error, err error) {
	ctx := context.Background()
	tx, err := r.bed.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	recs := make([]outbox.Record, len(bodies))
	for i, body := range bodies {
		recs[i] = r.record(body)
	}
	if err := r.bed.store.Enlist(ctx, tx, recs...); err != nil {
		return nil, nil, errors.Join(err, tx.Rollback())
	}
	note := func(committed bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.state++
		for _, rec := range recs {
			body := string(rec.Message.Body)
			r.names[rec.ID] = body
			if committed {
				r.committed = append(r.committed, rec.ID)
				if key := string(rec.Message.Key); key != "" {
					r.order[key] = append(r.order[key], body)
				}
			}
		}
	}
	commit = func() error {
		// Noted first: a relay may have sent it before Commit returns.
		note(true)
		defer r.log("producer: committed %s", strings.Join(bodies, " "))
		return tx.Commit()
	}
	rollback = func() error {
		note(false)
		return tx.Rollback()
	}
	return commit, rollback, nil
}

func (r *run) produce(bodies ...string) error {
	commit, _, err := r.enlist(bodies...)
	if err != nil {
		return err
	}
	return commit()
}

// crash is the relay before the first one: it has taken every lane, told that
// it may have sent the first four rows, and is gone.
func (r *run) crash() error {
	ctx, s := context.Background(), r.bed.store
	owner := outbox.NewID()
	g, err := s.AcquireLanes(ctx, outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 3, TTL: time.Minute})
	if err != nil {
		return err
	}
	req := outbox.SettleRequest{Owner: owner}
	for _, l := range g.Leases {
		req.TriedTo = append(req.TriedTo, outbox.LaneMark{Lane: l.Lane, Epoch: l.Epoch, Pos: 4})
	}
	if _, err := s.SettleLanes(ctx, req); err != nil {
		return err
	}
	_, err = r.bed.db.ExecContext(ctx, `UPDATE postrider_relays SET expires_at = 1`)
	return err
}

// play runs the scenario to its end and checks what came of it.
func (r *run) play() (err error) {
	defer r.close()
	ctx := context.Background()
	// d1 draws its position early and commits late, where the engine can.
	err = r.produce("a1", "b1", "c1", "u1", "a2", "b2", "c2", "u2", "q1", "q2", "p1", "p2", "a3", "b3", "c3", "u3", "a4", "b4", "c4", "s1")
	if err != nil {
		return err
	}
	if err := r.crash(); err != nil {
		return err
	}
	if _, err := r.bed.store.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("p"), By: "test", Why: "test"}); err != nil {
		return err
	}
	var late func() error
	if r.bed.e.late {
		if late, _, err = r.enlist("d1"); err != nil {
			return err
		}
		// Above it in the same lanes, so that the cursors pass it.
		if err = r.produce("e1", "f1", "g1", "h1"); err != nil {
			return errors.Join(err, late())
		}
	}
	r.next("a relay alone")
	a, err := r.start()
	if err == nil {
		err = r.await("the first messages", func() (bool, error) {
			if r.bed.e.late {
				return r.broker.accepted("e1") && r.broker.accepted("f1") && r.broker.accepted("g1") && r.broker.accepted("h1"), nil
			}
			return r.broker.accepted("a2"), nil
		})
	}
	if late != nil {
		err = errors.Join(err, late())
	}
	if err != nil {
		return err
	}
	if !r.bed.e.late {
		if err := r.produce("d1"); err != nil {
			return err
		}
	}
	_, rollback, err := r.enlist("a99", "u99")
	if err != nil {
		return err
	}
	if err := errors.Join(rollback(), r.produce("d2")); err != nil {
		return err
	}

	err = r.await("p to be moved aside, and q1 to be parked or out", func() (bool, error) {
		keys, err := r.bed.store.ParkedKeys(ctx, nil)
		if err != nil || len(keys) < 2 && !r.broker.accepted("q1") {
			return false, err
		}
		at, err := r.places()
		for id, where := range at {
			if strings.HasPrefix(r.names[id], "p") && where[0] != "deferred" {
				return false, nil
			}
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	r.broker.free("p")
	for _, key := range []string{"p", "q"} {
		freed, err := r.bed.store.UnparkKey(ctx, "default", []byte(key), "test")
		if err != nil {
			return err
		}
		r.log("operator: unparked %s: %v", key, freed)
	}
	r.next("the hand-over")

	// The hand-over: a second relay joins, then the first one leaves.
	if len(r.relays) == 1 {
		if _, err := r.start(); err != nil {
			return err
		}
	}
	err = r.await("every relay to hold lanes", func() (bool, error) {
		live := r.live()
		return len(live) > 0 && !slices.ContainsFunc(live, func(p *process) bool { return p.lanes.Load() == 0 }), nil
	})
	if err != nil {
		return err
	}
	if err := r.produce("a5", "b5", "u4", "c5", "d3", "u5"); err != nil {
		return err
	}
	r.next("the first relay leaves")
	if err := r.stop(a); err != nil {
		return err
	}
	r.next("the other alone")
	if err := r.produce("a6", "u6", "c6"); err != nil {
		return err
	}
	if err := r.await("everything to be delivered", r.delivered); err != nil {
		return err
	}
	r.next("the end")
	r.final = true
	for len(r.live()) > 0 {
		if err := r.stop(r.live()[0]); err != nil {
			return err
		}
	}
	return r.verdict()
}

// stop ends a relay cleanly, unless it is killed before or on the way.
func (r *run) stop(p *process) error {
	r.log("%s: stops", p.name)
	p.cancel()
	err := r.await(p.name+" to stop", func() (bool, error) { return p.ended() || p.dead.Load(), nil })
	if err == nil && !p.dead.Load() && p.err != nil {
		err = fmt.Errorf("%s stopped: %w", p.name, p.err)
	}
	return err
}

// close leaves nothing of the run in the database.
func (r *run) close() {
	for _, p := range r.relays {
		p.dead.Store(true)
		p.cancel()
		for _, c := range p.connections() {
			c.mu.Lock()
			c.end()
			c.mu.Unlock()
		}
		r.bed.zombies.Go(func() { <-p.done })
	}
}
