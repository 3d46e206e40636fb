package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// duplicateWindow is the smallest that JetStream allows. With the usual two
// minutes the broker would hide every duplicate from the verdict.
const duplicateWindow = 100 * time.Millisecond

// broker is a JetStream server and the demo's stream on it.
type broker struct {
	url      string
	embedded *server.Server // nil with --nats
	nats     *app.NATS
	stream   jetstream.Stream
	name     string // of the stream
	subject  string // of the messages, a customer's id follows
	types    *outbox.Types
	wire     *transport.Wire
}

// openBroker starts or connects to a server and makes the stream.
func openBroker(ctx context.Context, url, dir, run string) (b *broker, err error) {
	b = &broker{url: url, name: "POSTRIDER_DEMO_" + run, subject: "postrider.demo." + run}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.types, err = orderTypes(); err != nil {
		return b, err
	}
	if b.wire, err = transport.NewWire(transport.NATS, transport.HeaderNames{}); err != nil {
		return b, err
	}
	if url == "" {
		if err := b.start(filepath.Join(dir, "jetstream")); err != nil {
			return b, err
		}
	}
	if b.nats, err = app.OpenNATS(ctx, b.url, nil); err != nil {
		return b, usage("--nats: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	b.stream, err = b.nats.JS.CreateStream(ctx, jetstream.StreamConfig{
		Name:        b.name,
		Description: "made and deleted by postrider demo",
		Subjects:    []string{b.subject + ".>"},
		Storage:     jetstream.FileStorage,
		Duplicates:  duplicateWindow,
	})
	if err != nil {
		return b, usage("--nats: create stream %s on %s: %w: the demo needs the right to make and delete a stream", b.name, b.nats.Name, err)
	}
	return b, nil
}

func (b *broker) start(dir string) (err error) {
	b.embedded, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return fmt.Errorf("make the embedded NATS server: %w", err)
	}
	b.embedded.Start()
	if !b.embedded.ReadyForConnections(connectTimeout) {
		return fmt.Errorf("the embedded NATS server did not start within %v in %s", connectTimeout, dir)
	}
	b.url = b.embedded.ClientURL()
	return nil
}

// remove deletes the stream.
func (b *broker) remove(ctx context.Context) error {
	if err := b.nats.JS.DeleteStream(ctx, b.name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete stream %s of %s: %w", b.name, b.nats.Name, err)
	}
	return nil
}

func (b *broker) close() {
	if b.nats != nil {
		b.nats.Close()
	}
	if b.embedded != nil {
		b.embedded.Shutdown()
		b.embedded.WaitForShutdown()
	}
}

// String names the server without its password.
func (b *broker) String() string {
	if b.embedded != nil {
		return "NATS JetStream, embedded, stream " + b.name
	}
	return fmt.Sprintf("NATS JetStream %s, stream %s", b.nats.Name, b.name)
}

// stored is how many messages the stream holds, copies included.
func (b *broker) stored(ctx context.Context) (int64, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("look at stream %s: %w", b.name, err)
	}
	return int64(info.State.Msgs), nil
}

// decode reads one message of the stream. One that makes no sense comes back
// as an order that nobody can have placed.
func (b *broker) decode(headers nats.Header, body []byte) Stored {
	m := Stored{Order: Order{Message: headers.Get(nats.MsgIdHdr)}}
	in, err := b.wire.Parse(transport.Values(headers))
	m.Lane, m.Pos = int64(in.Lane), in.Pos
	if err != nil || in.ID != m.Message {
		return m
	}
	if o, err := outbox.Decode[placed](b.types, in.Type, body); err == nil {
		m.Customer, m.Number = o.Customer, o.Number
	}
	return m
}

// record reads the stream from its first message to its last.
func (b *broker) record(ctx context.Context, r *Recorded) error {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", b.name, err)
	}
	want := int(info.State.Msgs)
	if want == 0 {
		return nil
	}
	cons, err := b.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("read stream %s: %w", b.name, err)
	}
	msgs, err := cons.Messages(jetstream.WithMessagesErrOnMissingHeartbeat(false))
	if err != nil {
		return fmt.Errorf("read stream %s: %w", b.name, err)
	}
	defer msgs.Stop()
	defer context.AfterFunc(ctx, msgs.Stop)()
	r.Stream = make([]Stored, 0, want)
	for last := uint64(0); last < info.State.LastSeq; {
		msg, err := msgs.Next(jetstream.NextMaxWait(settlePatience))
		if err != nil {
			return fmt.Errorf("read stream %s after message %d: %w", b.name, last, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read stream %s after message %d: %w", b.name, last, err)
		}
		last = meta.Sequence.Stream
		m := b.decode(msg.Headers(), msg.Data())
		m.At = meta.Timestamp
		r.Stream = append(r.Stream, m)
	}
	if len(r.Stream) != want {
		return fmt.Errorf("stream %s gave %d messages of %d", b.name, len(r.Stream), want)
	}
	return nil
}
