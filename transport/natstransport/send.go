package natstransport

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/transport"
)

// A subject without responders is tried again, since a stream has none while
// it elects a leader; after that the server is asked whether there is a stream.
const (
	retries   = 2
	retryWait = 250 * time.Millisecond
	lookup    = 2 * time.Second
)

// flight is one delivery of one Send.
type flight struct {
	d     *transport.Delivery
	b     *batch
	msg   *nats.Msg
	tries int       // answers "no responders" so far
	due   time.Time // of the next try
	done  atomic.Bool
}

// batch is one Send.
type batch struct {
	flights []*flight
	open    atomic.Int64 // flights without an outcome, and one for the Send itself
	idle    chan struct{}
	retry   chan *flight // no responders; never full
}

func (b *batch) release() {
	if b.open.Add(-1) == 0 {
		close(b.idle)
	}
}

// finish reports the outcome unless the flight has one or was given up. Send
// returns only after every finish that has begun.
func (f *flight) finish(o transport.Outcome, err error) {
	if f.done.CompareAndSwap(false, true) {
		f.d.Report(o, err)
		f.b.release()
	}
}

// forget ends a flight whose message did not go out, without a report.
func (f *flight) forget() {
	if f.done.CompareAndSwap(false, true) {
		f.b.release()
	}
}

// Send implements [transport.Transport]. Concurrent Sends share the window of
// Options.MaxInFlight.
func (t *Transport) Send(ctx context.Context, ds []*transport.Delivery) {
	b := &batch{flights: make([]*flight, 0, len(ds)), idle: make(chan struct{}), retry: make(chan *flight, len(ds))}
	b.open.Store(1)
	for _, d := range ds {
		if ctx.Err() != nil {
			break
		}
		msg, err := t.message(d)
		if err != nil {
			d.Report(transport.Permanent, err)
			continue
		}
		f := &flight{d: d, b: b, msg: msg}
		b.flights = append(b.flights, f)
		b.open.Add(1)
		t.publish(ctx, f)
	}
	b.release()
	t.await(ctx, b)
}

// await returns when every flight has an outcome, or was given up because ctx
// has ended.
func (t *Transport) await(ctx context.Context, b *batch) {
	var queue []*flight // waiting for their next try, by due
	found := map[string]error{}
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-b.idle:
			return
		case f := <-b.retry:
			if f.tries > retries {
				f.finish(t.resolve(ctx, f.msg.Subject, found))
				continue
			}
			f.due = time.Now().Add(retryWait)
			if queue = append(queue, f); len(queue) == 1 {
				timer.Reset(retryWait)
			}
		case now := <-timer.C:
			for len(queue) > 0 && !queue[0].due.After(now) {
				f := queue[0]
				queue = queue[1:]
				t.publish(ctx, f)
			}
			if len(queue) > 0 {
				timer.Reset(time.Until(queue[0].due))
			}
		case <-ctx.Done():
			for _, f := range queue {
				f.forget()
			}
			for len(b.retry) > 0 {
				(<-b.retry).forget()
			}
			for _, f := range b.flights {
				f.finish(transport.Unknown, fmt.Errorf("no acknowledgement from NATS yet: %w", context.Cause(ctx)))
			}
			<-b.idle
			return
		}
	}
}

// publish hands one message to the client, under a slot that is given back
// when nats.go is done with it.
func (t *Transport) publish(ctx context.Context, f *flight) {
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		f.forget()
		return
	}
	// This also waits while a blocked write holds the connection's lock, so
	// that the lease is judged after that wait and not before.
	if !t.nc.IsConnected() {
		<-t.slots
		f.finish(transport.Unreachable, t.down())
		return
	}
	t.mu.Lock()
	t.flights[f.msg] = f
	t.mu.Unlock()
	if err := f.d.Begin(); err != nil {
		t.take(f.msg)
		f.finish(transport.Unsent, err)
		return
	}
	if _, err := t.pub.PublishMsgAsync(f.msg, t.pubOpts...); err != nil && t.take(f.msg) != nil {
		f.finish(t.classifyPublish(f.msg, err))
	}
}

// take ends the wait for msg and gives its slot back; nil if it has ended.
func (t *Transport) take(msg *nats.Msg) *flight {
	t.mu.Lock()
	f := t.flights[msg]
	delete(t.flights, msg)
	t.mu.Unlock()
	if f != nil {
		<-t.slots
	}
	return f
}

func (t *Transport) onAck(_ jetstream.JetStream, msg *nats.Msg, _ *jetstream.PubAck) {
	if f := t.take(msg); f != nil {
		f.finish(transport.Accepted, nil)
	}
}

func (t *Transport) onError(_ jetstream.JetStream, msg *nats.Msg, err error) {
	f := t.take(msg)
	switch {
	case f == nil:
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		f.tries++
		if !f.done.Load() {
			f.b.retry <- f
		}
	case errors.Is(err, jetstream.ErrAsyncPublishTimeout):
		// nats.go calls this under its publisher's lock; the report may lead
		// to the next publish.
		go f.finish(t.classifyAck(msg, err))
	default:
		f.finish(t.classifyAck(msg, err))
	}
}
