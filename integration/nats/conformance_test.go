package nats_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport/natstransport"
	"github.com/postrider/postrider/transport/transporttest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*natstransport.Options{"defaults": nil, "one in flight": {MaxInFlight: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transporttest.Run(t, func(t *testing.T) transporttest.Fixture {
				f := newFixture(t, nil)
				return transporttest.Fixture{
					Transport:    f.transport(t, o),
					Destination:  f.name + ".messages",
					Unroutable:   testenv.Name("nowhere."),
					Deduplicates: true,
					Permanent: func(rec *outbox.Record) {
						rec.Message.Headers = []outbox.Header{{Name: "Line", Value: []byte("a\nb")}}
					},
					Received: func(tb testing.TB) []transporttest.Message { return f.received(tb) },
				}
			})
		})
	}
}

// received reads the stream once the server has seen all that was published.
func (f *fixture) received(tb testing.TB) []transporttest.Message {
	tb.Helper()
	if err := f.nc.Flush(); err != nil {
		tb.Fatal(err)
	}
	n := int(f.settled(tb))
	if n == 0 {
		return nil
	}
	cons, err := f.stream.OrderedConsumer(tb.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		tb.Fatal(err)
	}
	batch, err := cons.Fetch(n, jetstream.FetchMaxWait(30*time.Second))
	if err != nil {
		tb.Fatal(err)
	}
	var out []transporttest.Message
	for m := range batch.Messages() {
		out = append(out, transporttest.Message{ID: m.Headers().Get(jetstream.MsgIDHeader), Body: m.Data()})
	}
	if err := batch.Error(); err != nil {
		tb.Fatal(err)
	}
	return out
}

// settled is the number of messages once it has stopped rising: the server
// stores what it has received behind the answer to a flush.
func (f *fixture) settled(tb testing.TB) uint64 {
	tb.Helper()
	n := f.count(tb)
	for {
		time.Sleep(20 * time.Millisecond)
		m := f.count(tb)
		if m == n {
			return n
		}
		n = m
	}
}
