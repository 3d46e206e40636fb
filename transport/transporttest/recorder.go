package transporttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// ErrScripted is the error of an answer that is not Accepted and names none.
var ErrScripted = errors.New("scripted outcome")

// Reply is a scripted answer to one send.
type Reply struct {
	// Outcome is what the broker answers. Unsent means that the message is not
	// handed over at all: nothing is recorded and nothing reported.
	Outcome transport.Outcome
	// Err goes with it. Defaults to ErrScripted unless the outcome is Accepted.
	Err error
	// After is how long the answer takes. Zero or less: it comes before Send
	// goes on to the next message.
	After time.Duration
	// Until, if set, holds the answer back until it is closed, after After.
	Until <-chan struct{}
	// Silent: no answer ever comes. The message is Unknown when the context of
	// Send ends, and the log says what Outcome says: a broker that took it
	// (Accepted) and whose answer was lost, or one that did not.
	Silent bool
}

// Sent is one message that a [Recorder] put on the wire.
type Sent struct {
	Record outbox.Record // a copy that the caller owns
	Lane   outbox.Lane   // stored lane
	Epoch  int64
	Pos    int64
	Nth    int               // 1 for the first send of this id, 2 for the next
	At     time.Time         // when it went out
	Answer transport.Outcome // what the broker made of it, whether or not the answer was seen
}

// Options change a [Recorder]. The zero value accepts every message at once.
type Options struct {
	// Script decides the answer to a send, nth counting the sends of this id
	// from 1. It runs on the goroutine of Send, concurrently for concurrent
	// Sends, and may block: that delays the message and those behind it.
	// Defaults to Accepted after Latency.
	Script func(d *transport.Delivery, nth int) Reply
	// Latency is how long the answers of the default script take. Defaults to
	// none.
	Latency time.Duration
	// Pipelined declares [transport.Pipeliner]: once a message of a key is not
	// accepted, the later ones of that key in the same Send are left unsent.
	// Defaults to one message of a key at a time, and a second one in flight is
	// a violation.
	Pipelined bool
	// Check is what [transport.Checker] answers. Defaults to no error.
	Check func(ctx context.Context) error
}

// Recorder is a transport without a broker. It records what was sent, in the
// order in which it went out, and answers as scripted. It does no I/O and
// waits by timers and channels only, so that it works under testing/synctest.
// It is safe for concurrent use.
type Recorder struct {
	opts Options

	mu         sync.Mutex
	sent       []Sent
	nth        map[outbox.ID]int
	open       map[string]int // messages in flight per route and key
	inFlight   int
	peak       int
	late       int
	accepted   int
	firsts     map[outbox.ID]bool // accepted at least once
	violations []string
	changed    chan struct{} // closed at the next change
}

var (
	_ transport.Transport = (*Recorder)(nil)
	_ transport.Pipeliner = (*Recorder)(nil)
	_ transport.Checker   = (*Recorder)(nil)
)

// NewRecorder returns a Recorder; nil options mean their defaults.
func NewRecorder(opts *Options) *Recorder {
	r := &Recorder{nth: map[outbox.ID]int{}, open: map[string]int{}, firsts: map[outbox.ID]bool{}, changed: make(chan struct{})}
	if opts != nil {
		r.opts = *opts
	}
	if r.opts.Script == nil {
		r.opts.Script = func(*transport.Delivery, int) Reply {
			return Reply{Outcome: transport.Accepted, After: r.opts.Latency}
		}
	}
	return r
}

// PipelinesKeys returns Options.Pipelined.
func (r *Recorder) PipelinesKeys() bool { return r.opts.Pipelined }

// Check returns what Options.Check returns.
func (r *Recorder) Check(ctx context.Context) error {
	if r.opts.Check == nil {
		return nil
	}
	return r.opts.Check(ctx)
}

// Send implements [transport.Transport].
func (r *Recorder) Send(ctx context.Context, ds []*transport.Delivery) {
	var wg sync.WaitGroup
	defer wg.Wait()
	failed := map[string]bool{}
	for _, d := range ds {
		if ctx.Err() != nil {
			return
		}
		key := keyOf(d)
		if r.opts.Pipelined && key != "" && failed[key] {
			continue
		}
		nth := r.next(d.Record.ID)
		reply := r.opts.Script(d, nth)
		if reply.Outcome == transport.Unsent {
			continue
		}
		if reply.Err == nil && reply.Outcome != transport.Accepted {
			reply.Err = fmt.Errorf("%w: %s", ErrScripted, reply.Outcome)
		}
		if err := d.Begin(); err != nil {
			r.update(func() { r.late++ })
			d.Report(transport.Unsent, err)
			continue
		}
		if reply.Outcome != transport.Accepted {
			failed[key] = true
		}
		r.begin(d, key, nth, reply.Outcome)
		if reply.After <= 0 && reply.Until == nil && !reply.Silent {
			r.finish(d, key, reply.Outcome, reply.Err)
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := reply.wait(ctx); err != nil {
				r.finish(d, key, transport.Unknown, fmt.Errorf("no answer: %w", err))
				return
			}
			r.finish(d, key, reply.Outcome, reply.Err)
		}()
	}
}

// wait returns nil when the answer is due, or why ctx ended before.
func (p Reply) wait(ctx context.Context) error {
	if p.Silent {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if p.After > 0 {
		t := time.NewTimer(p.After)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if p.Until != nil {
		select {
		case <-p.Until:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func keyOf(d *transport.Delivery) string {
	if d.Record.Message.Key == nil {
		return ""
	}
	return d.Record.Transport + "\x00" + string(d.Record.Message.Key)
}

func (r *Recorder) update(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Recorder) next(id outbox.ID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nth[id] + 1
}

func (r *Recorder) begin(d *transport.Delivery, key string, nth int, answer transport.Outcome) {
	rec := *d.Record
	rec.Message = d.Record.Message.Clone()
	r.update(func() {
		r.nth[rec.ID] = nth
		r.sent = append(r.sent, Sent{Record: rec, Lane: d.Lane, Epoch: d.Epoch, Pos: d.Pos, Nth: nth, At: time.Now(), Answer: answer})
		r.inFlight++
		r.peak = max(r.peak, r.inFlight)
		if key != "" {
			r.open[key]++
			if r.open[key] > 1 && !r.opts.Pipelined {
				r.violations = append(r.violations, fmt.Sprintf("%d messages of key %q in flight at once (position %d)", r.open[key], rec.Message.Key, d.Pos))
			}
		}
	})
}

func (r *Recorder) finish(d *transport.Delivery, key string, o transport.Outcome, err error) {
	// Before the report: the dispatcher may send the key's next message from
	// within it.
	r.update(func() {
		r.inFlight--
		if key != "" {
			if r.open[key]--; r.open[key] == 0 {
				delete(r.open, key)
			}
		}
		if o == transport.Accepted {
			r.accepted++
			r.firsts[d.Record.ID] = true
		}
	})
	d.Report(o, err)
}

// Sent returns every message that went out so far, in order, repeats and
// refused ones included.
func (r *Recorder) Sent() []Sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// Accepted returns the messages that the broker took, in the order in which
// they went out, repeats included.
func (r *Recorder) Accepted() []Sent {
	return slices.DeleteFunc(r.Sent(), func(s Sent) bool { return s.Answer != transport.Accepted })
}

// First returns the first accepted send of each message, in order: what a
// consumer that drops duplicates applies.
func (r *Recorder) First() []Sent {
	seen := map[outbox.ID]bool{}
	return slices.DeleteFunc(r.Accepted(), func(s Sent) bool {
		dup := seen[s.Record.ID]
		seen[s.Record.ID] = true
		return dup
	})
}

// Late is how many sends were given up because the lease had ended.
func (r *Recorder) Late() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// InFlight returns how many messages wait for their answer now, and the most
// that ever did.
func (r *Recorder) InFlight() (now, peak int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight, r.peak
}

// Violations returns what a dispatcher did wrong: two messages of a key in
// flight at once without Pipelined.
func (r *Recorder) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// WaitSent returns when at least n messages have gone out, or with the reason
// why ctx ended and how many did.
func (r *Recorder) WaitSent(ctx context.Context, n int) error {
	return r.wait(ctx, "sent", n, func() int { return len(r.sent) })
}

// WaitAccepted returns when at least n answers were Accepted, or with the
// reason why ctx ended and how many were.
func (r *Recorder) WaitAccepted(ctx context.Context, n int) error {
	return r.wait(ctx, "accepted", n, func() int { return r.accepted })
}

// WaitFirst returns when at least n different messages were Accepted, or with
// the reason why ctx ended and how many were.
func (r *Recorder) WaitFirst(ctx context.Context, n int) error {
	return r.wait(ctx, "accepted", n, func() int { return len(r.firsts) })
}

func (r *Recorder) wait(ctx context.Context, what string, n int, have func() int) error {
	for {
		r.mu.Lock()
		got, changed := have(), r.changed
		r.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages %s: %w", got, n, what, context.Cause(ctx))
		}
	}
}

// Reset forgets what was recorded; messages in flight stay so.
func (r *Recorder) Reset() {
	r.update(func() {
		r.sent, r.violations, r.nth, r.firsts = nil, nil, map[outbox.ID]int{}, map[outbox.ID]bool{}
		r.late, r.accepted, r.peak = 0, 0, r.inFlight
	})
}
