package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// Message is what a broker holds of a delivered message.
type Message struct {
	ID   string
	Body []byte
}

// Fixture is a transport under test and an empty place at its broker.
type Fixture struct {
	Transport transport.Transport
	// Destination is an address that the broker accepts.
	Destination string
	// Received returns what the broker holds at Destination, in its order,
	// once everything sent before has arrived.
	Received func(tb testing.TB) []Message
	// Deduplicates says that the broker keeps one message of an id.
	Deduplicates bool
	// Permanent makes rec one that the broker can never take. nil: there is no
	// such message, and its rule is left out.
	Permanent func(rec *outbox.Record)
	// Unroutable is an address that the broker has no place for. "": there is
	// none, and its rule is left out.
	Unroutable string
}

// Run checks the rules of [transport.Transport], one subtest a rule.
// newFixture is called once for each subtest. The rule of a
// [transport.Pipeliner] runs only where PipelinesKeys is true.
func Run(t *testing.T, newFixture func(t *testing.T) Fixture) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"accepted_is_at_the_broker", accepted},
		{"each_delivery_is_reported_once", reportedOnce},
		{"sends_are_in_order", inOrder},
		{"concurrent_sends", concurrent},
		{"sent_again_is_accepted_again", again},
		{"nothing_without_a_lease", noLease},
		{"the_lease_is_asked_for_each_message", leaseEach},
		{"nothing_under_an_ended_context", endedContext},
		{"nothing_is_touched_after_send_returned", untouched},
		{"memory_is_free_after_the_report", memory},
		{"permanent_spares_the_others", permanent},
		{"unroutable_spares_the_others", unroutable},
		{"pipelined_key_fails_its_suffix", pipelined},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c.run(t, &suite{Fixture: newFixture(t), t: t, ctx: ctx})
		})
	}
}

type suite struct {
	Fixture
	t   *testing.T
	ctx context.Context
}

func (s *suite) deliveries(n int) []*transport.Delivery {
	ds := make([]*transport.Delivery, n)
	for i := range ds {
		rec := &outbox.Record{
			ID: outbox.NewID(), Transport: "default", Type: "transporttest.v1", CreatedAt: time.Now(),
			Message: outbox.Message{
				Destination: s.Destination, ContentType: "text/plain", Body: fmt.Appendf(nil, "message %d", i),
				Event: outbox.Event{Source: "/transporttest"},
			},
		}
		if err := rec.Normalize(0); err != nil {
			s.t.Fatal(err)
		}
		ds[i] = &transport.Delivery{Record: rec, Lane: 1, Epoch: 1, Pos: int64(i + 1)}
	}
	return ds
}

func (s *suite) want(d *transport.Delivery, want transport.Outcome) {
	s.t.Helper()
	o, err := d.Outcome()
	if o != want {
		s.t.Errorf("%s: outcome %s (%v), want %s", d.Record.Message.Body, o, err, want)
	}
	if err == nil && o != transport.Accepted && o != transport.Unsent {
		s.t.Errorf("%s: outcome %s without an error that says why", d.Record.Message.Body, o)
	}
}

// received checks that the broker holds ds in this order, and nothing else.
func (s *suite) received(ds []*transport.Delivery) {
	s.t.Helper()
	got := s.Received(s.t)
	if len(got) != len(ds) {
		s.t.Errorf("the broker holds %d messages, want %d", len(got), len(ds))
	}
	for i, m := range got[:min(len(got), len(ds))] {
		if rec := ds[i].Record; m.ID != rec.ID.String() || !bytes.Equal(m.Body, rec.Message.Body) {
			s.t.Errorf("message %d at the broker is %s %q, want %s %q", i, m.ID, m.Body, rec.ID, rec.Message.Body)
			return
		}
	}
}

func accepted(t *testing.T, s *suite) {
	s.Transport.Send(s.ctx, nil)
	ds := s.deliveries(1)
	s.Transport.Send(s.ctx, ds)
	s.want(ds[0], transport.Accepted)
	s.received(ds)
}

type count struct{ n atomic.Int64 }

func (c *count) Reported(*transport.Delivery) { c.n.Add(1) }

func reportedOnce(t *testing.T, s *suite) {
	ds := s.deliveries(300)
	sinks := make([]count, len(ds))
	for i, d := range ds {
		d.Sink = &sinks[i]
	}
	s.Transport.Send(s.ctx, ds)
	for i, d := range ds {
		s.want(d, transport.Accepted)
		if n := sinks[i].n.Load(); n != 1 {
			t.Fatalf("%d reports of message %d when Send returned, want 1", n, i)
		}
	}
}

func inOrder(t *testing.T, s *suite) {
	ds := s.deliveries(500)
	for part := range 5 {
		s.Transport.Send(s.ctx, ds[part*100:(part+1)*100])
	}
	for _, d := range ds {
		s.want(d, transport.Accepted)
	}
	s.received(ds)
}

func concurrent(t *testing.T, s *suite) {
	ds := s.deliveries(400)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { s.Transport.Send(s.ctx, ds[i*50:(i+1)*50]) })
	}
	wg.Wait()
	missing := map[string]bool{}
	for _, d := range ds {
		s.want(d, transport.Accepted)
		missing[d.Record.ID.String()] = true
	}
	got := s.Received(t)
	for _, m := range got {
		delete(missing, m.ID)
	}
	if len(got) != len(ds) || len(missing) != 0 {
		t.Errorf("the broker holds %d messages, %d are missing; want %d", len(got), len(missing), len(ds))
	}
}

func again(t *testing.T, s *suite) {
	first := s.deliveries(1)
	second := []*transport.Delivery{{Record: first[0].Record, Lane: 1, Epoch: 2, Pos: 1}}
	s.Transport.Send(s.ctx, first)
	s.Transport.Send(s.ctx, second)
	s.want(first[0], transport.Accepted)
	s.want(second[0], transport.Accepted)
	if s.Deduplicates {
		s.received(first)
		return
	}
	s.received(append(first, second...))
}

// lease is live for the first left questions.
type lease struct{ left atomic.Int64 }

func (l *lease) Live() bool { return l.left.Add(-1) >= 0 }

func noLease(t *testing.T, s *suite) {
	ds := s.deliveries(10)
	for _, d := range ds {
		d.Lease = &lease{}
	}
	s.Transport.Send(s.ctx, ds)
	for _, d := range ds {
		s.want(d, transport.Unsent)
	}
	s.received(nil)
}

func leaseEach(t *testing.T, s *suite) {
	ds := s.deliveries(10)
	shared := &lease{}
	shared.left.Store(4) // more than one question for a message would show as fewer sent
	for _, d := range ds {
		d.Lease = shared
	}
	s.Transport.Send(s.ctx, ds)
	for i, d := range ds {
		if i < 4 {
			s.want(d, transport.Accepted)
		} else {
			s.want(d, transport.Unsent)
		}
	}
	s.received(ds[:4])
}

func endedContext(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	ds := s.deliveries(10)
	s.Transport.Send(ctx, ds)
	for _, d := range ds {
		s.want(d, transport.Unsent)
	}
	s.received(nil)
}

// The context ends at any moment of a Send: what it did not report it does not
// report later, and what it calls unsent has not arrived.
func untouched(t *testing.T, s *suite) {
	unsent := map[string]bool{}
	certain := map[string]bool{}
	for i := range 30 {
		ctx, cancel := context.WithCancel(s.ctx)
		ds := s.deliveries(200)
		var told count
		for _, d := range ds {
			d.Sink = &told
		}
		timer := time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
		s.Transport.Send(ctx, ds)
		n := told.n.Load()
		timer.Stop()
		cancel()
		for _, d := range ds {
			switch o, err := d.Outcome(); o {
			case transport.Unsent:
				unsent[d.Record.ID.String()] = true
			case transport.Accepted:
				certain[d.Record.ID.String()] = true
			case transport.Unknown:
			default:
				t.Errorf("outcome %s (%v) for an ended context, want accepted, unknown or unsent", o, err)
			}
		}
		defer func() {
			if later := told.n.Load(); later != n {
				t.Errorf("%d reports after Send had returned", later-n)
			}
		}()
	}
	for _, m := range s.Received(t) {
		delete(certain, m.ID)
		if unsent[m.ID] {
			t.Errorf("message %s is at the broker and was called unsent", m.ID)
		}
	}
	if len(certain) != 0 {
		t.Errorf("%d messages were accepted and are not at the broker", len(certain))
	}
}

// scribbler uses the record's memory for something else once it may.
type scribbler struct{}

func (scribbler) Reported(d *transport.Delivery) {
	for i := range d.Record.Message.Body {
		d.Record.Message.Body[i] = '#'
	}
}

func memory(t *testing.T, s *suite) {
	ds := s.deliveries(200)
	want := map[string]string{}
	for _, d := range ds {
		want[d.Record.ID.String()] = string(d.Record.Message.Body)
		d.Sink = scribbler{}
	}
	s.Transport.Send(s.ctx, ds)
	got := s.Received(t)
	if len(got) != len(ds) {
		t.Errorf("the broker holds %d messages, want %d", len(got), len(ds))
	}
	for _, m := range got {
		if string(m.Body) != want[m.ID] {
			t.Fatalf("message %s is %q at the broker, want %q: its memory was used after the report", m.ID, m.Body, want[m.ID])
		}
	}
}

// spares sends three messages with one in the middle that fails.
func (s *suite) spares(spoil func(*outbox.Record), want transport.Outcome) {
	ds := s.deliveries(3)
	spoil(ds[1].Record)
	s.Transport.Send(s.ctx, ds)
	s.want(ds[0], transport.Accepted)
	s.want(ds[1], want)
	s.want(ds[2], transport.Accepted)
	s.received([]*transport.Delivery{ds[0], ds[2]})
	if _, err := ds[1].Outcome(); errors.Is(err, transport.ErrLeaseEnded) {
		s.t.Errorf("the error of a live delivery is %v", err)
	}
}

func permanent(t *testing.T, s *suite) {
	if s.Permanent != nil {
		s.spares(s.Permanent, transport.Permanent)
	}
}

func unroutable(t *testing.T, s *suite) {
	if s.Unroutable != "" {
		s.spares(func(rec *outbox.Record) { rec.Message.Destination = s.Unroutable }, transport.Unroutable)
	}
}

func pipelined(t *testing.T, s *suite) {
	p, ok := s.Transport.(transport.Pipeliner)
	if !ok || !p.PipelinesKeys() || s.Permanent == nil {
		return
	}
	ds := s.deliveries(20)
	for _, d := range ds {
		d.Record.Message.Key = []byte("key")
	}
	s.Permanent(ds[7].Record)
	s.Transport.Send(s.ctx, ds)
	for i, d := range ds {
		switch o, _ := d.Outcome(); {
		case i < 7:
			s.want(d, transport.Accepted)
		case i == 7:
			s.want(d, transport.Permanent)
		case o == transport.Accepted:
			t.Errorf("message %d of the key was accepted after message 7 was not", i)
		}
	}
	s.received(ds[:7])
}
