package nats_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/natstransport"
)

// fixture is a stream of the test's own on the shared server.
type fixture struct {
	nc     *natsgo.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	name   string // of the stream; its subjects are name.>
}

func connect(tb testing.TB, url string, opts ...natsgo.Option) (*natsgo.Conn, jetstream.JetStream) {
	tb.Helper()
	quiet := natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {})
	nc, err := natsgo.Connect(url, append(append(natstransport.ConnectOptions(), quiet), opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return nc, js
}

func newFixture(tb testing.TB, change func(*jetstream.StreamConfig)) *fixture {
	tb.Helper()
	nc, js := connect(tb, testenv.NATS(tb))
	name := testenv.Name("T")
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}
	if change != nil {
		change(&cfg)
	}
	s, err := js.CreateStream(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := js.DeleteStream(ctx, name); err != nil {
			tb.Errorf("delete stream %s: %v", name, err)
		}
	})
	return &fixture{nc: nc, js: js, stream: s, name: name}
}

func (f *fixture) transport(tb testing.TB, opts *natstransport.Options) *natstransport.Transport {
	tb.Helper()
	t, err := natstransport.New(f.js, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// stored returns every message of the stream in order.
func (f *fixture) stored(tb testing.TB) []*jetstream.RawStreamMsg {
	tb.Helper()
	info, err := f.stream.Info(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	var out []*jetstream.RawStreamMsg
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && seq > 0; seq++ {
		m, err := f.stream.GetMsg(tb.Context(), seq)
		if err != nil {
			tb.Fatalf("message %d of %s: %v", seq, f.name, err)
		}
		out = append(out, m)
	}
	return out
}

func (f *fixture) count(tb testing.TB) uint64 {
	tb.Helper()
	info, err := f.stream.Info(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return info.State.Msgs
}

// record is a message as a store would hand it out.
func record(subject string, body string) *outbox.Record {
	rec := &outbox.Record{
		ID: outbox.NewID(), Transport: "default", Type: "shop.order.placed.v1", CreatedAt: time.Now(),
		Message: outbox.Message{Destination: subject, Body: []byte(body), Event: outbox.Event{Source: "/shop"}},
	}
	if err := rec.Normalize(0); err != nil {
		panic(fmt.Sprintf("the test's own record: %v", err))
	}
	return rec
}

func delivery(rec *outbox.Record) *transport.Delivery { return &transport.Delivery{Record: rec} }

func deliveries(subject string, n int) []*transport.Delivery {
	ds := make([]*transport.Delivery, n)
	for i := range ds {
		ds[i] = delivery(record(subject, fmt.Sprint(i)))
	}
	return ds
}

// sendOne sends rec and returns the outcome.
func sendOne(tb testing.TB, t *natstransport.Transport, rec *outbox.Record) (transport.Outcome, error) {
	tb.Helper()
	d := delivery(rec)
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	t.Send(ctx, []*transport.Delivery{d})
	return d.Outcome()
}

// counter is a Sink that counts what it is told.
type counter struct{ n atomic.Int64 }

func (c *counter) Reported(*transport.Delivery) { c.n.Add(1) }
