package histories_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// step is one planned call. Everything in it follows from the seed; which lease
// and which position it uses is what was granted and read by then.
type step struct {
	at   time.Duration // since the start of the history
	rest time.Duration // since the step before, however late that was
	do   func(ctx context.Context, c *client)
}

// plan is the steps of each client.
type plan [][]step

// planner draws a plan.
type planner struct {
	rng   *rand.Rand
	rows  []place
	lanes map[outbox.Lane][]int
	used  map[outbox.Lane]int // operations planned for each lane
	chaos bool                // cancel some of the calls
}

func newPlanner(seed uint64, rows []place, chaos bool) *planner {
	p := &planner{rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), rows: rows, lanes: map[outbox.Lane][]int{}, used: map[outbox.Lane]int{}, chaos: chaos}
	for _, r := range rows {
		p.lanes[r.lane] = append(p.lanes[r.lane], r.number)
	}
	return p
}

// cancel is after how long the call is cancelled; negative: not at all.
func (p *planner) cancel() time.Duration {
	if !p.chaos || p.rng.IntN(25) != 0 {
		return -1
	}
	// A quarter at once: an engine may answer anything within some microseconds.
	return max(0, time.Duration(p.rng.Int64N(int64(2*time.Millisecond)))-500*time.Microsecond)
}

// hit is true n times of 100.
func (p *planner) hit(n int) bool { return p.rng.IntN(100) < n }

// claimer draws the life of dispatchers that claim: each attempt goes its way
// with a token of its own, and now and then somebody uses an older one.
type claimer struct {
	*planner
	tokens map[int][]int // of each row, in the order of planning
	next   int
	after  []func(row, token int) func(context.Context, *client)
	row    int
	token  int
}

// begin takes up another row.
func (a *claimer) begin(row int) {
	a.next++
	a.row, a.token, a.after = row, a.next, nil
	a.tokens[row] = append(a.tokens[row], a.token)
}

// call plans one contract call with virtual times drawn here, except for the
// instant that all clients share.
func (p *planner) call(k kind, row, token int) func(context.Context, *client) {
	forward, lag := p.rng.Int64N(2), p.rng.Int64N(4)
	ttl, retry := 1+p.rng.Int64N(25), p.rng.Int64N(12)
	if p.hit(50) {
		lag = 0
	}
	if p.hit(60) {
		retry = 0
	}
	cancel := p.cancel()
	return func(ctx context.Context, c *client) {
		now := max(1, c.ticks.Add(forward)-lag)
		o := &op{kind: k, row: row, token: token, now: now}
		switch k {
		case claim, renew:
			o.expires = now + ttl
		case fail:
			if retry > 0 {
				o.retry = now + retry
			}
		}
		c.contract(ctx, o, cancel)
	}
}

// step plans the claimer's next call on a row.
func (a *claimer) step(row int) func(context.Context, *client) {
	if a.row != row || a.token == 0 || len(a.after) == 0 {
		a.begin(row)
		then := func(k kind) func(int, int) func(context.Context, *client) {
			return func(row, token int) func(context.Context, *client) { return a.call(k, row, token) }
		}
		if a.hit(40) {
			a.after = append(a.after, then(renew))
		}
		end := fail
		switch n := a.rng.IntN(100); {
		case n < 6:
			end = complete
		case n < 30:
			end = release
		case n < 50:
			end = renew
		}
		a.after = append(a.after, then(end))
		if a.hit(35) {
			a.after = append(a.after, then(end))
		}
		return a.call(claim, row, a.token)
	}
	if list := a.tokens[row]; a.hit(15) {
		// A token of somebody who is gone, or of somebody who is at it.
		k := [...]kind{renew, fail, release, fail, renew}[a.rng.IntN(5)]
		if a.hit(4) {
			k = complete
		}
		return a.call(k, row, list[max(0, len(list)-1-a.rng.IntN(4))])
	}
	do := a.after[0](row, a.token)
	a.after = a.after[1:]
	return do
}

// claims is a plan of clients that only claim. They meet at few rows at a time.
func (p *planner) claims(clients, steps int) plan {
	out := make(plan, clients)
	var all []*claimer
	tokens := map[int][]int{}
	for i := range clients {
		all = append(all, &claimer{planner: p, tokens: tokens, next: (i + 1) * 100000})
	}
	order := p.rng.Perm(len(p.rows))
	const stay = 24
	for s := range steps {
		for i, a := range all {
			// Half of the clients at one row, half at another.
			row := order[(2*(s/stay)+i%2)%len(order)]
			var do func(context.Context, *client)
			if p.hit(3) {
				do = p.pending(p.rows[row])
			} else {
				do = a.step(row)
			}
			out[i] = append(out[i], step{do: do})
		}
	}
	return out
}

// pending plans a contract read of the row's lane, or of all unordered ones.
func (p *planner) pending(r place) func(context.Context, *client) {
	lane, lag, cancel := r.lane, p.rng.Int64N(3), p.cancel()
	if !r.keyed {
		lane = outbox.Unordered
	}
	return func(ctx context.Context, c *client) { c.readPending(ctx, lane, max(1, c.ticks.Load()-lag), cancel) }
}

// mix is who takes part in a history of leases, and how fast. All act on a
// common beat.
type mix struct {
	relays, workers, claimers int
	beats                     int
	beat                      time.Duration
	every                     int  // beats between two calls of a relay, on average
	pauses                    bool // relays stop now and then until their window has ended
}

// leased is a plan of relays that take and give back lanes, of workers that
// settle under leases, new and old, and of claimers, mostly on the same lane at
// the same time. With a beat of some milliseconds no window ends unless a relay
// says so.
func (p *planner) leased(m mix) plan {
	var out plan
	lanes := make([]outbox.Lane, 0, len(p.lanes))
	for _, r := range p.rows {
		if len(lanes) == 0 || lanes[len(lanes)-1] != r.lane {
			lanes = append(lanes, r.lane)
		}
	}
	focus := make([]outbox.Lane, m.beats)
	for i := range focus {
		focus[i] = lanes[p.rng.IntN(len(lanes))]
	}
	lane := func(b int) outbox.Lane {
		if p.hit(80) {
			return focus[b]
		}
		return lanes[p.rng.IntN(len(lanes))]
	}
	// A part holds only so many operations; the last ones are those of look.
	room := func(lanes ...outbox.Lane) bool {
		for _, l := range lanes {
			if p.used[l] >= maxPart-2 {
				return false
			}
		}
		for _, l := range lanes {
			p.used[l]++
		}
		return true
	}
	when := func(b int) time.Duration {
		return time.Duration(b)*m.beat + time.Duration(p.rng.Int64N(int64(400*time.Microsecond)))
	}
	for range m.relays {
		var steps []step
		rest := time.Duration(0)
		for b := p.rng.IntN(m.every); b < m.beats; b += 1 + p.rng.IntN(2*m.every-1) {
			if room(lanes...) {
				steps = append(steps, step{at: when(b), rest: rest, do: p.leaseStep()})
				rest = 0
			}
			if m.pauses && p.hit(15) {
				rest = 1150 * time.Millisecond
				b += int(rest/m.beat) + p.rng.IntN(5)
			}
		}
		out = append(out, steps)
	}
	for range m.workers {
		var steps []step
		for b := 0; b < m.beats; b++ {
			if l := lane(b); p.hit(75) && room(l) {
				steps = append(steps, step{at: when(b), do: p.workStep(l, room)})
			}
		}
		out = append(out, steps)
	}
	tokens := map[int][]int{}
	for i := range m.claimers {
		a := &claimer{planner: p, tokens: tokens, next: (i + 1) * 100000}
		var steps []step
		for b := 0; b < m.beats; b++ {
			if p.hit(15) {
				continue
			}
			row := a.row
			if len(a.after) == 0 || p.hit(10) {
				list := p.lanes[lane(b)]
				row = list[p.rng.IntN(len(list))]
			}
			if room(p.rows[row].lane) {
				steps = append(steps, step{at: when(b), do: a.step(row)})
			}
		}
		out = append(out, steps)
	}
	return out
}

// leaseStep is a renewal, an acquisition, a release or a clean stop.
func (p *planner) leaseStep() func(context.Context, *client) {
	n, cancel, want := p.rng.IntN(100), p.cancel(), 1+p.rng.IntN(2*laneCount)
	ttl := time.Second + time.Duration(p.rng.IntN(2))*100*time.Millisecond
	old := p.rng.IntN(3)
	return func(ctx context.Context, c *client) {
		switch {
		case n < 45:
			c.acquireLanes(ctx, want, ttl, nil, false, false, cancel)
		case n < 60:
			c.acquireLanes(ctx, 0, ttl, nil, false, false, cancel)
		case n < 80:
			c.acquireLanes(ctx, 0, ttl, c.held, n%2 == 0, false, cancel)
		case n < 85:
			// A release that comes late: another epoch by now.
			var give []lease
			for _, lane := range c.rig.lanes() {
				if l := c.pick(lane, old); l.owner == c.owner {
					give = append(give, l)
				}
			}
			c.acquireLanes(ctx, want, ttl, give, n%2 == 0, false, cancel)
		case n < 90:
			c.acquireLanes(ctx, 0, ttl, c.held, true, true, cancel)
		default:
			c.acquireLanes(ctx, 0, ttl, nil, false, true, cancel)
		}
	}
}

// workStep reads, settles or promotes under the last lease of the lane, or an
// older one.
func (p *planner) workStep(lane outbox.Lane, room func(...outbox.Lane) bool) func(context.Context, *client) {
	n, cancel, old := p.rng.IntN(100), p.cancel(), 0
	if p.hit(30) {
		old = 1 + p.rng.IntN(3)
	}
	list := p.lanes[lane]
	rows := []int{list[p.rng.IntN(len(list))]}
	if other := list[p.rng.IntN(len(list))]; other != rows[0] && p.hit(30) {
		rows = append(rows, other)
	}
	attempt, retry, mark, back := p.hit(80), int64(0), p.hit(25), p.hit(40)
	if p.hit(40) {
		retry = 1 + p.rng.Int64N(10)
	}
	// An unkeyed row that failed waits aside, and may come back at once.
	follow := n >= 62 && retry == 0 && back && !p.rows[rows[0]].keyed && room(lane)
	return func(ctx context.Context, c *client) {
		l := c.pick(lane, old)
		wait := retry
		if wait > 0 {
			wait += c.ticks.Load()
		}
		switch {
		case n < 35:
			c.readLane(ctx, lane, cancel)
		case n < 50:
			c.promoteLane(ctx, l, cancel)
		case n < 53:
			c.settleRow(ctx, l, rows[:1], outbox.SettleAccepted, false, 0, mark, cancel)
		case n < 56:
			c.settleRow(ctx, l, rows[:1], outbox.SettleDead, attempt, 0, mark, cancel)
		case n < 62:
			c.settleRow(ctx, l, nil, outbox.SettleAccepted, false, 0, true, cancel)
		default:
			c.settleRow(ctx, l, rows, outbox.SettleFailed, attempt, wait, mark, cancel)
			if follow {
				c.promoteLane(ctx, l, cancel)
			}
		}
	}
}

// killEvery is after how many calls a connection is killed, on average.
const killEvery = 30

// run lets every client go through its steps, then looks at what is left.
func (g *rig) run(p plan, kill bool, seed uint64) error {
	ctx, cancel := context.WithCancel(g.tb.Context())
	defer cancel()
	start := time.Now()
	var clients, chaos sync.WaitGroup
	if kill {
		chaos.Go(func() { g.killer(ctx, rand.New(rand.NewPCG(seed, 1)), killEvery) })
	}
	for i, steps := range p {
		clients.Go(func() {
			c := g.newClient(i)
			defer c.disconnect()
			for _, s := range steps {
				time.Sleep(max(s.at-time.Since(start), s.rest))
				s.do(g.tb.Context(), c)
			}
		})
	}
	clients.Wait()
	cancel()
	chaos.Wait()
	if err := g.settleDown(); err != nil {
		return err
	}
	g.look()
	return nil
}
