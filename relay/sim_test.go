package relay

import (
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/storetest"
	"github.com/postrider/postrider/transport"
)

// The simulation runs the calls of several relays one at a time, on one
// goroutine, under virtual time: their loops, their sends, producers with open
// transactions, operators, a broker without deduplication, and faults between
// any two steps. One seed is one run, exactly.

var errSim = errors.New("connection lost")

type simEvent struct {
	at  time.Time
	seq int
	do  func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].seq < q[j].seq
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	old[len(old)-1] = simEvent{}
	*q = old[:len(old)-1]
	return x
}

// sim is one run.
type sim struct {
	rng    *rand.Rand
	mem    *storetest.Mem
	start  time.Time
	queue  simQueue
	seq    int
	events int
	digest uint64
	log    []string
	seen   map[string]int
	broken []string // invariants that did not hold

	relays []*simRelay
	plan   simPlan
	calm   bool
	outage bool // of the broker
	cut    bool // of the store

	locked    map[int]bool // keys held by an open transaction
	numbers   []int        // the last committed number of a key
	producing int
	messages  map[outbox.ID]*simMessage
	arrived   []*simMessage // at the broker, in order
	epochs    map[outbox.Lane]int64
	parkings  map[string]*parking // by operators, while they last
}

// simPlan is what a seed chooses.
type simPlan struct {
	keys, relays, producers, orders int
	ordered, unordered              int
	pipelined                       bool
	poison                          Poison
	attempts                        int // MaxAttempts; 0 = without end
	refuse, unknown, unroutable     float64
	faults, late, stalls, freeze    float64
	killer, hot, renewLate          bool
	drift, pace                     float64
	offset                          time.Duration
}

type simMessage struct {
	id                 outbox.ID
	key                string // "" = unordered
	number             int
	committed, rolled  bool
	killer             bool
	sent, got          int // handed to the wire; arrived and taken
	counted            int // outcomes that may spend an attempt
	died               bool
	due, retry         time.Time
	refusals, unknowns int
}

func (m *simMessage) String() string {
	if m.key == "" {
		return fmt.Sprintf("free-%x", m.id[14:])
	}
	return fmt.Sprintf("%s/%d", m.key, m.number)
}

func (s *sim) chance(p float64) bool { return s.rng.Float64() < p }
func (s *sim) intn(n int) int        { return s.rng.IntN(n) }

// ms is a random time below n milliseconds.
func (s *sim) ms(n float64) time.Duration {
	return 1 + time.Duration(s.rng.Float64()*n*float64(time.Millisecond))
}

func (s *sim) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	h := fnv.New64a()
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], s.digest)
	binary.LittleEndian.PutUint64(b[8:], uint64(time.Since(s.start)))
	h.Write(b[:])
	h.Write([]byte(line))
	s.digest = h.Sum64()
	s.log = append(s.log, fmt.Sprintf("%9.2fms %s", float64(time.Since(s.start).Microseconds())/1000, line))
}

func (s *sim) breaks(invariant, format string, args ...any) {
	s.broken = append(s.broken, invariant+": "+fmt.Sprintf(format, args...))
}

func (s *sim) after(d time.Duration, do func()) {
	s.seq++
	heap.Push(&s.queue, simEvent{time.Now().Add(d), s.seq, do})
}

// run handles events until the time is over or done says so.
func (s *sim) run(d time.Duration, done func() bool) {
	end := time.Now().Add(d)
	same, last := 0, time.Time{}
	for len(s.queue) > 0 && !s.queue[0].at.After(end) {
		ev := heap.Pop(&s.queue).(simEvent)
		if wait := time.Until(ev.at); wait > 0 {
			time.Sleep(wait)
			synctest.Wait() // timers of the windows
		}
		if now := time.Now(); now.Equal(last) {
			if same++; same > 20000 {
				s.breaks("D2", "20,000 steps without time passing: a hot loop")
				return
			}
		} else {
			same, last = 0, now
		}
		if s.events++; s.events > 500_000 {
			s.breaks("D2", "500,000 steps in a run: a hot loop")
			return
		}
		ev.do()
		for _, r := range s.relays {
			r.kicks()
		}
		if done != nil && done() {
			return
		}
	}
	time.Sleep(time.Until(end))
}

// simRelay is one relay process.
type simRelay struct {
	s       *sim
	name    int
	e       *engine
	loops   []*simLoop
	rules   simRules
	dead    bool
	stopped bool      // the loops that read and send are over
	until   time.Time // paused until then
	hang    time.Time // its statements take seconds to arrive until then
	wire    time.Time // when the last bytes on its connection to the broker arrive
}

// simLoop is a loop, or a sender, that waits or has a call under way.
type simLoop struct {
	r    *simRelay
	step func()
	kick chan struct{}
	idle bool
	deaf bool
	gen  int
	over bool
	busy bool // its call is under way
}

// simTransport only says whether keys are pipelined; the simulation sends.
type simTransport struct{ pipelined bool }

func (simTransport) Send(context.Context, []*transport.Delivery) {}
func (t simTransport) PipelinesKeys() bool                       { return t.pipelined }

func (s *sim) newRelay() *simRelay {
	r := &simRelay{s: s, name: len(s.relays) + 1, rules: simRules{accepted: map[*simMessage]bool{}, start: map[outbox.Lane]int{}, flying: map[flight]int{}}}
	attempts := s.plan.attempts
	if attempts == 0 {
		attempts = -1
	}
	opt := (&Options{
		TTL: 2 * time.Second, PollMax: 300 * time.Millisecond, Batch: 1 + s.intn(20), InFlight: 1 + s.intn(4),
		BufferRows: 64 + s.intn(100), MaxAttempts: attempts, Poison: s.plan.poison,
		BackoffMin: 5 * time.Millisecond, BackoffMax: 2 * time.Second, Grace: time.Second,
		Hooks: Hooks{
			Dead: func(_ string, id outbox.ID, reason string) {
				s.messages[id].died = true
				s.note("%v is dead: %s", s.messages[id], reason)
			},
			LeaseLost: func(ls outbox.LaneLease, reason string) { s.note("relay %d lost lane %d: %s", r.name, ls.Lane, reason) },
			Attempt:   func(a Attempt) { s.note("relay %d %v: %s", r.name, s.messages[a.Record.ID], a.Outcome) },
		},
	}).withDefaults()
	r.e = newEngine(opt, s.mem, map[string]transport.Transport{"default": simTransport{s.plan.pipelined}})
	r.e.core.draw = s.rng.Int64N
	r.e.core.often, r.e.core.most = 2, 2
	for _, l := range []looper{r.e.lease, r.e.read, r.e.sweep, r.e.settle} {
		r.loop(l)
	}
	for _, rt := range r.e.core.routes {
		r.sender(rt)
	}
	s.relays = append(s.relays, r)
	s.note("relay %d starts", r.name)
	return r
}

// alive says whether the process may act now; a stopped one acts later.
func (r *simRelay) alive(later func()) bool {
	if r.dead {
		return false
	}
	if time.Now().Before(r.until) {
		r.s.after(time.Until(r.until), later)
		return false
	}
	return true
}

func (r *simRelay) kicks() {
	if r.dead || time.Now().Before(r.until) {
		return
	}
	for _, l := range r.loops {
		if l.idle && !l.deaf && !l.over {
			select {
			case <-l.kick:
				l.idle = false
				l.gen++
				r.s.after(0, l.step)
			default:
			}
		}
	}
}

func (l *simLoop) sleep(d time.Duration, deaf bool) {
	l.idle, l.deaf = true, deaf
	l.gen++
	gen := l.gen
	l.r.s.after(max(d, 0), func() {
		if l.gen == gen && !l.over {
			l.idle = false
			l.step()
		}
	})
}

// loop gives a looper its calls.
func (r *simRelay) loop(lp looper) {
	s := r.s
	l := &simLoop{r: r, kick: lp.base().kick}
	purpose := lp.base().purpose
	l.step = func() {
		if !r.alive(l.step) || l.over {
			return
		}
		c, w := lp.next()
		if c == nil {
			l.sleep(w.d, w.deaf)
			return
		}
		l.busy = true
		s.call(r, purpose, c, func(err error) {
			l.busy = false
			if err != nil {
				l.sleep(storeBackoffSim(s), true)
				return
			}
			l.step()
		})
	}
	r.loops = append(r.loops, l)
	s.after(s.ms(5), l.step)
}

// storeBackoffSim is storeBackoff out of the run's randomness.
func storeBackoffSim(s *sim) time.Duration {
	if s.chance(0.3) {
		return s.ms(1000)
	}
	return s.ms(20)
}

// call runs one store call: it reaches the store, or not; its answer comes,
// late, or not.
func (s *sim) call(r *simRelay, purpose string, c *call, then func(error)) {
	to, back := s.ms(2), s.ms(2)
	if !s.calm && s.chance(s.plan.late) {
		if s.chance(0.5) {
			to = s.ms(300)
		} else {
			back = s.ms(400)
		}
	}
	slow, lost := s.plan.late/6, s.plan.faults
	if purpose == "settle" { // there are few, and repeats and fences hang on them
		slow, lost = 2*slow, 5*lost
	}
	if !s.calm && s.chance(s.plan.late/20) {
		back = s.ms(4000) // longer than the lease
	} else if !s.calm && s.chance(slow) {
		to = s.ms(4000)
	}
	if !s.calm && time.Now().Before(r.hang) {
		to = time.Second + s.ms(5000)
	}
	if !s.calm && purpose == "lease" && s.plan.renewLate && s.chance(0.7) {
		to = s.ms(900) // about as long as it may take; windows end meanwhile
	}
	before, behind := false, false
	if !s.calm {
		before, behind = s.cut || s.chance(s.plan.faults), s.chance(lost)
	}
	var err error
	seen := s.newCall(r)
	finish := func() {}
	finish = func() {
		if !r.alive(finish) {
			return
		}
		if r.e.answered(purpose, err) {
			s.seen["call lost"]++
			seen.lost()
		}
		c.end(err)
		seen.over(err)
		then(err)
	}
	if to > c.timeout {
		err = context.DeadlineExceeded
		s.after(c.timeout, finish)
		return
	}
	s.after(to, func() {
		if r.dead {
			return // killed before its statement was sent
		}
		if before {
			err = errSim
			s.after(back, finish)
			return
		}
		err = c.do(context.Background(), simStore{s.mem, s, seen})
		if behind {
			s.seen["answer lost"]++
			err = errSim
		}
		if to+back > c.timeout {
			err, back = context.DeadlineExceeded, c.timeout-to
		}
		s.after(back, finish)
	})
}

// simStore checks what relays ask of the store.
type simStore struct {
	*storetest.Mem
	s    *sim
	call *simCall
}

func (st simStore) ReadLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
	st.call.read(reads)
	return st.Mem.ReadLanes(ctx, reads, dst)
}

func (st simStore) AcquireLanes(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
	st.call.acquire(r)
	g, err := st.Mem.AcquireLanes(ctx, r)
	st.call.renewed = err == nil
	st.call.expires = time.Now().Add(time.Duration(float64(r.TTL) / (1 + st.s.plan.drift)))
	for _, l := range g.Leases {
		if l.Epoch < st.s.epochs[l.Lane] {
			st.s.breaks("epoch", "lane %d was granted under epoch %d after %d", l.Lane, l.Epoch, st.s.epochs[l.Lane])
		}
		st.s.epochs[l.Lane] = l.Epoch
	}
	return g, err
}

func (st simStore) SettleLanes(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
	res, err := st.Mem.SettleLanes(ctx, r)
	for i, t := range r.Settlements {
		if err != nil || res[i] != outbox.Settled || t.Outcome == outbox.SettleAccepted {
			continue
		}
		m := st.s.messages[t.ID]
		st.s.settledAs(m, t)
		if t.Epoch < st.s.epochs[t.Lane] {
			st.s.breaks("fence", "%v was settled under epoch %d, the lane has %d", m, t.Epoch, st.s.epochs[t.Lane])
		}
		switch {
		case t.Outcome == outbox.SettleCount && t.Attempt:
			m.counted++
		case t.TakeBack:
			m.counted--
		}
	}
	return res, err
}

// sender hands batches of a route to the wire.
func (r *simRelay) sender(rt *route) {
	s := r.s
	l := &simLoop{r: r, kick: rt.kick}
	l.step = func() {
		if !r.alive(l.step) || l.over {
			return
		}
		b, w := r.e.nextBatch(rt)
		if b == nil {
			l.sleep(w, false)
			return
		}
		s.handOut(r, b)
		s.send(r, b)
		l.step()
	}
	r.loops = append(r.loops, l)
	s.after(s.ms(5), l.step)
}

// send puts the deliveries of a batch on the wire one after another.
func (s *sim) send(r *simRelay, b *batch) {
	failed := map[string]bool{}
	open := len(b.ds) + 1
	closeOne := func() {
		if open--; open == 0 {
			b.done()
		}
	}
	i := 0
	next := func() {}
	next = func() {
		if !r.alive(next) {
			return
		}
		if i == len(b.ds) {
			closeOne()
			return
		}
		if i > 0 && !s.calm && s.chance(s.plan.freeze) {
			s.freeze(r, time.Second+s.ms(4000))
			s.after(time.Until(r.until), next)
			return
		}
		d := b.ds[i]
		i++
		key := string(d.Record.Message.Key)
		switch {
		case key != "" && failed[key]:
			closeOne()
		case b.window.ctx.Err() != nil && s.chance(0.5): // else the check comes before the news
			failed[key] = true
			closeOne()
		case d.Begin() != nil:
			s.seen["shed tail"]++
			failed[key] = true
			closeOne()
		default:
			s.wire(r, b, d, func() { failed[key] = true }, closeOne)
		}
		if !r.dead {
			s.after(s.ms(s.plan.pace), next)
		}
	}
	next()
}

// wire is one message that left the process.
func (s *sim) wire(r *simRelay, b *batch, d *transport.Delivery, failed, closed func()) {
	m := s.messages[d.Record.ID]
	m.sent++
	s.begin(r, b, d, m)
	r.rules.flying[flight{b.window.owner, d.Lane}]++
	spend := func() { m.counted++ }
	solo := r.e.core.solo != nil && r.e.core.solo.sent == d
	if solo {
		spend = func() {} // committed before the send; its outcome adds none
	}
	if d.Record.Attempts > m.counted {
		s.breaks("attempts", "%v has %d attempts, %d outcomes could have counted", m, d.Record.Attempts, m.counted)
	}
	if !m.committed {
		s.breaks("phantom", "%v was sent and is not committed", m)
	}
	if !m.due.IsZero() && s.serverNow().Before(m.due) {
		s.breaks("early", "%v was sent %v before it was due", m, m.due.Sub(s.serverNow()))
	}
	if m.killer {
		if m.sent > 1 && (!solo || len(b.ds) > 1) {
			s.breaks("killer", "the message that has killed its sender is sent again beside others, without an attempt counted")
		}
		s.seen["killed by a message"]++
		s.kill(r)
		return
	}
	o := transport.Accepted
	arrives := true
	answer := s.ms(6)
	if !s.calm {
		switch x := s.rng.Float64(); {
		case s.outage:
			o, arrives = transport.Unreachable, false
		case x < s.plan.refuse:
			o, arrives = transport.Refused, false
			spend()
			s.seen["refused"]++
		case x < s.plan.refuse+s.plan.unknown:
			o = transport.Unknown
			arrives = s.chance(0.6)
			spend()
			s.seen["answer of the broker lost"]++
		case x < s.plan.refuse+s.plan.unknown+s.plan.unroutable:
			o, arrives = transport.Unroutable, false
		case x < s.plan.refuse+s.plan.unknown+s.plan.unroutable+0.005:
			o, arrives = transport.Permanent, false
			if s.plan.attempts == 0 {
				o = transport.Refused
			}
			spend()
		}
	}
	if o != transport.Accepted {
		failed()
	}
	travel := min(s.ms(3), answer)
	if !s.calm && s.chance(s.plan.stalls) {
		travel = s.ms(6000) // a stopped host's last bytes: another owner may be at work
		answer = travel + s.ms(3)
	}
	// One connection: what left later arrives later.
	if at := time.Now().Add(travel); at.After(r.wire) {
		r.wire = at
	} else {
		r.wire = r.wire.Add(1)
		travel = time.Until(r.wire)
	}
	answer = max(answer, travel+1)
	if arrives {
		s.after(travel, func() {
			m.got++
			s.arrived = append(s.arrived, m)
			if d.Epoch < s.epochs[d.Lane] {
				s.seen["send of a superseded owner arrives"]++
			}
		})
	}
	report := func() {}
	report = func() {
		if !r.alive(report) {
			return
		}
		if b.window.ctx.Err() != nil && o == transport.Accepted && s.chance(0.5) {
			o = transport.Unknown // the context ended first
		}
		d.Report(o, nil)
		r.rules.flying[flight{b.window.owner, d.Lane}]--
		if o == transport.Accepted && (b.window == r.e.window || b.window == r.e.lease.old) {
			// Not an answer that nobody waits for any more.
			r.rules.accepted[m] = true
		}
		closed()
	}
	if wait := b.window.left(); answer > wait && wait > 0 {
		// Cancelled at the end of trust: what is not answered is unknown.
		s.after(wait+time.Microsecond, func() {
			if b.window.ctx.Err() != nil && o == transport.Accepted {
				o = transport.Unknown
			}
		})
	}
	s.after(answer, report)
}

// kill ends a process between two of its steps.
func (s *sim) kill(r *simRelay) {
	if r.dead {
		return
	}
	r.dead = true
	s.note("relay %d is killed", r.name)
	s.seen["kill"]++
	if r.e.core.sends() > 0 {
		s.seen["kill with sends in flight"]++
	}
	s.collect(r)
	s.after(s.ms(500), func() { s.newRelay() })
}

func (s *sim) collect(r *simRelay) {
	for i, n := range r.e.core.seen {
		s.seen[eventNames[i]] += n
	}
	r.e.window.end()
}

var eventNames = [evCount]string{
	evLateCommit: "late commit under the cursor", evFound: "row found by a sweep", evGrave: "late read of a row that had left", evOrphan: "row read again while its delete was on its way",
	evTakeover: "lane of a dead owner", evSolo: "solo suspect", evFenced: "outcome fenced", evShed: "row shed", evTrial: "lost route tried in vain",
	evTrim: "hot key trimmed", evPark: "key parked", evUnpark: "key unparked", evRefused: "settle failed", evWindow: "window ended",
	evSeen: "keys named as seen", evStranger: "row of a key named as seen by mistake",
}

// stop is the clean stop of Run.
func (s *sim) stop(r *simRelay, then func()) {
	if r.dead || r.stopped {
		return
	}
	r.stopped = true
	s.note("relay %d stops", r.name)
	s.seen["clean stop"]++
	r.e.stop()
	for _, i := range []int{1, 2, 4} { // read, sweep, send
		r.loops[i].over = true
	}
	began := time.Now()
	cancelled := false
	poll, last := func() {}, func() {}
	poll = func() {
		if !r.alive(poll) {
			return
		}
		waited := time.Since(began)
		if r.e.core.sends() > 0 && waited < r.e.opt.Grace+cancelGrace {
			if waited >= r.e.opt.Grace && !cancelled {
				cancelled = true
				r.e.window.cancel()
			}
			s.after(2*time.Millisecond, poll)
			return
		}
		if r.e.core.pending() > 0 && waited < r.e.opt.Grace+cancelGrace+settleGrace {
			r.e.settle.signal()
			s.after(2*time.Millisecond, poll)
			return
		}
		for _, l := range r.loops {
			l.over = true
		}
		if r.loops[0].busy { // cancelled, it comes back sooner; the fate of a lost one is as unknown
			s.after(2*time.Millisecond, poll)
			return
		}
		last()
	}
	last = func() {
		if c := r.e.lease.lastCall(); c != nil {
			s.call(r, "lease", c, func(error) { last() })
			return
		}
		if took := time.Since(began); took > r.e.opt.Grace+cancelGrace+settleGrace+8*time.Second {
			s.breaks("P8", "the stop of relay %d took %v", r.name, took)
		}
		r.dead = true
		s.collect(r)
		if then != nil {
			then()
		}
	}
	poll()
}
