package demo

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// enlisted catches what Publish would store.
type enlisted struct{ recs []outbox.Record }

func (e *enlisted) Enlist(_ context.Context, _ *int, recs ...outbox.Record) error {
	e.recs = append(e.recs, recs...)
	return nil
}

func TestStreamIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := openBroker(ctx, "", t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	var r Recorded
	if err := b.record(ctx, &r); err != nil || len(r.Stream) != 0 {
		t.Fatalf("an empty stream: %d messages, %v", len(r.Stream), err)
	}

	var store enlisted
	box, err := outbox.New[*int](&store, &outbox.Options{Types: b.types, Transport: route, Source: "/test"})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	var ds []*transport.Delivery
	for i := range int64(3) {
		_, err := box.Publish(ctx, new(int), outbox.Publication{
			Value:   placed{Customer: 7, Number: i + 1, Cents: 5},
			Message: outbox.Message{Destination: b.subject + ".7", Key: []byte("customer-7")},
		})
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, &transport.Delivery{Record: &store.recs[i], Lane: 3, Epoch: 1, Pos: 40 + i})
	}
	broker, err := app.OpenNATS(ctx, b.url, &app.NATSOptions{Stream: b.name})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	for _, d := range ds {
		broker.Send(ctx, []*transport.Delivery{d})
		if o, err := d.Outcome(); o != transport.Accepted {
			t.Fatalf("%v: %v", o, err)
		}
	}
	// Strangers' messages must not pass for orders.
	for _, h := range []nats.Header{{}, {nats.MsgIdHdr: {"stranger"}}} {
		if _, err := b.nats.JS.PublishMsg(ctx, &nats.Msg{Subject: b.subject + ".8", Header: h, Data: []byte(`{"customer":8,"number":1}`)}); err != nil {
			t.Fatal(err)
		}
	}

	if err := b.record(ctx, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Stream) != 5 {
		t.Fatalf("%d messages, want 5", len(r.Stream))
	}
	for i, m := range r.Stream[:3] {
		want := Stored{Order: Order{store.recs[i].ID.String(), 7, int64(i + 1)}, Lane: 3, Pos: 40 + int64(i), At: m.At}
		if m != want {
			t.Errorf("message %d is %+v, want %+v", i, m, want)
		}
		if m.At.Before(begin.Add(-time.Second)) || m.At.After(time.Now().Add(time.Second)) {
			t.Errorf("message %d is of %v", i, m.At)
		}
	}
	for i, m := range r.Stream[3:] {
		if m.Customer != 0 || m.Number != 0 {
			t.Errorf("stranger %d passes for order %+v", i, m.Order)
		}
	}
	if n, err := b.stored(ctx); err != nil || n != 5 {
		t.Errorf("%d stored, %v", n, err)
	}
	if err := b.remove(ctx); err != nil {
		t.Errorf("delete the stream: %v", err)
	}
	if err := b.remove(ctx); err != nil {
		t.Errorf("delete it again: %v", err)
	}
}
