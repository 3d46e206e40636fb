package relay

import (
	"context"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// simRules are what one relay must not do, whatever the world does to it. They
// are judged when it acts, so that a run fails where it went wrong and not only
// when a message came out of order because of it.
type simRules struct {
	accepted map[*simMessage]bool // it was told so by the broker
	losses   int                  // store connections lost
	held     bool                 // no renewal that began after the last loss has succeeded
	start    map[outbox.Lane]int  // losses when the lane was last read from its start
	flying   map[flight]int       // messages on the wire and not answered
}

// flight is a lane under one of the relay's owner ids.
type flight struct {
	owner outbox.ID
	lane  outbox.Lane
}

// simCall is what a store call under way does, seen from the store.
type simCall struct {
	r       *simRelay
	losses  int // when it was planned
	renewed bool
	expires time.Time     // of the lease, on the relay's clock
	starts  []outbox.Lane // read from their start
}

func (s *sim) newCall(r *simRelay) *simCall { return &simCall{r: r, losses: r.rules.losses} }

// lost is called when the relay learns that a connection is lost.
func (c *simCall) lost() {
	c.r.rules.losses++
	c.r.rules.held = true
}

// over is called when the relay has taken the answer.
func (c *simCall) over(err error) {
	if err != nil {
		return
	}
	rules := &c.r.rules
	if w := c.r.e.window; c.renewed && w.live() && w.start.Add(time.Duration(w.until.Load())).After(c.expires) {
		c.r.s.breaks("trust", "relay %d trusts its lease for %v after its end", c.r.name, w.left()-time.Until(c.expires))
	}
	if c.renewed && c.losses == rules.losses {
		rules.held = false
	}
	for _, n := range c.starts {
		rules.start[n] = rules.losses
	}
}

// read judges a read when it reaches the store: after a lost connection nothing
// that was read before proves what the table holds, so every lane starts over.
func (c *simCall) read(reads []outbox.LaneRead) {
	s := c.r.s
	for _, rd := range reads {
		switch {
		case rd.UpTo != 0 || rd.Keys != nil:
		case rd.After == 0:
			c.starts = append(c.starts, rd.Lane)
		case c.losses > c.r.rules.start[rd.Lane]:
			s.breaks("cursor", "relay %d read lane %d above %d after a lost connection, not from its start", c.r.name, rd.Lane, rd.After)
		}
	}
}

// acquire judges a renewal: a lane is given back when nothing of it is on its
// way, so that a clean hand-over sends nothing twice.
func (c *simCall) acquire(r outbox.LaneRequest) {
	for _, l := range r.Release {
		if n := c.r.rules.flying[flight{r.Owner, l.Lane}]; n > 0 {
			c.r.s.breaks("handover", "relay %d gives lane %d back with %d messages on their way", c.r.name, l.Lane, n)
		}
	}
}

// handOut judges a batch when the relay hands it to the transport.
func (s *sim) handOut(r *simRelay, b *batch) {
	if r.rules.held {
		s.breaks("hold", "relay %d sends after a lost connection and before a renewal", r.name)
	}
	if w := b.window; !w.trusted(time.Since(w.start), time.Now().UnixNano()) {
		return // its lease has run out unnoticed: each send finds that, and nothing goes out
	}
	for _, d := range b.ds {
		key := string(d.Record.Message.Key)
		if p := s.parkings[key]; p != nil && p.confirmed && d.Epoch == s.epochs[d.Lane] {
			s.breaks("parked", "%v was handed out after the parking of its key was confirmed", s.messages[d.Record.ID])
		}
	}
}

// begin judges a message whose bytes go out now.
func (s *sim) begin(r *simRelay, b *batch, d *transport.Delivery, m *simMessage) {
	if b.window.ctx.Err() != nil && !r.stopped {
		s.breaks("window", "relay %d sends %v under a window that had ended", r.name, m)
	}
	if r.rules.accepted[m] {
		s.breaks("again", "relay %d sends %v, which was accepted from it before", r.name, m)
	}
	if d.Epoch < s.epochs[d.Lane] {
		s.breaks("trust", "relay %d sends %v under epoch %d of lane %d, which has %d", r.name, m, d.Epoch, d.Lane, s.epochs[d.Lane])
	}
	// A server whose clock is slow is ahead of us by what it lost since the
	// last renewal.
	if early := m.retry.Sub(s.serverNow()); early > 25*time.Millisecond {
		s.breaks("early", "%v was sent again %v before its retry time", m, early)
	}
}

// settledAs notes what an outcome that the store has written means for later
// sends.
func (s *sim) settledAs(m *simMessage, t outbox.Settlement) {
	m.retry = time.Time{}
	if t.Outcome != outbox.SettleFailed {
		return
	}
	m.retry = t.RetryAt
	if m.key == "" {
		// It comes back at another position. A delete of an earlier owner, to
		// whom it was accepted, finds nothing at the old one.
		for _, r := range s.relays {
			delete(r.rules.accepted, m)
		}
	}
}

// freeze stops a process for d, timers included: what is due meanwhile happens
// in any order when it goes on.
func (s *sim) freeze(r *simRelay, d time.Duration) {
	r.until = time.Now().Add(d)
	s.note("relay %d is frozen for %v", r.name, d)
	s.seen["freeze"]++
	w := r.e.window
	if w.timer == nil || !w.timer.Stop() {
		return
	}
	s.after(d+s.ms(1), func() {
		if !r.dead && !w.ended.Load() {
			w.timer.Reset(max(w.left(), 1))
		}
	})
}

// parking is a key that an operator has parked.
type parking struct{ confirmed bool }

// park parks a key for a while, and waits until its lane's owner has confirmed
// it: from then on nothing of the key may be handed out.
func (s *sim) park(name string) {
	ctx := context.Background()
	if _, err := s.mem.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte(name), By: "op", Why: "sim"}); err != nil {
		s.breaks("operate", "%v", err)
	}
	s.note("%s is parked", name)
	routes, err := s.mem.Routes(ctx)
	if err != nil {
		s.breaks("operate", "%v", err)
	}
	lanes := []outbox.Lane{outbox.LaneOf(routes[0], outbox.ID{}, []byte(name))}
	p := &parking{}
	s.parkings[name] = p
	poll := func() {}
	poll = func() {
		if s.parkings[name] != p {
			return // unparked meanwhile
		}
		ok, err := s.mem.Confirmed(ctx, lanes)
		switch {
		case err != nil:
			s.breaks("operate", "%v", err)
		case ok:
			s.note("the parking of %s is confirmed", name)
			s.seen["parking confirmed"]++
			p.confirmed = true
		default:
			s.after(20*time.Millisecond, poll)
		}
	}
	s.after(0, poll)
	s.after(s.ms(4000), func() { s.unpark(name) })
}

func (s *sim) unpark(name string) {
	delete(s.parkings, name)
	_, _ = s.mem.UnparkKey(context.Background(), "default", []byte(name), "op")
	s.note("%s is unparked", name)
}
