package contest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/natstransport"
)

const (
	natsStream  = "BENCH"
	natsSubject = "bench.events"
)

// NATS is an embedded server with JetStream and one stream in files.
type NATS struct {
	js   jetstream.JetStream
	conn *nats.Conn
	srv  *server.Server
}

// StartNATS starts a server on loopback that keeps its files in dir.
func StartNATS(ctx context.Context, dir string) (*NATS, error) {
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, JetStreamMaxStore: 8 << 30, JetStreamMaxMemory: 1 << 30,
	})
	if err != nil {
		return nil, err
	}
	n := &NATS{srv: srv}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		return nil, errors.Join(errors.New("the embedded NATS is not ready after 10 s"), n.Stop())
	}
	if n.conn, err = nats.Connect(srv.ClientURL(), natstransport.ConnectOptions()...); err == nil {
		n.js, err = jetstream.New(n.conn)
	}
	if err == nil {
		_, err = n.js.CreateStream(ctx, jetstream.StreamConfig{Name: natsStream, Subjects: []string{natsSubject}})
	}
	if err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// Stop ends the server.
func (n *NATS) Stop() error {
	if n.conn != nil {
		n.conn.Close()
	}
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
	return nil
}

// Transport sends to the stream and tells accepted the number of each message
// that the server has acknowledged.
func (n *NATS) Transport(accepted func(number int)) (transport.Transport, error) {
	t, err := natstransport.New(n.js, &natstransport.Options{Subjects: []string{natsSubject}})
	return tapped{t, accepted}, err
}

type tapped struct {
	transport.Transport
	accepted func(number int)
}

func (t tapped) Send(ctx context.Context, ds []*transport.Delivery) {
	taps := make([]tap, len(ds))
	for i, d := range ds {
		taps[i] = tap{d.Sink, t.accepted}
		d.Sink = &taps[i]
	}
	t.Transport.Send(ctx, ds)
}

// tap sees an outcome before the relay does.
type tap struct {
	next     transport.Sink
	accepted func(number int)
}

func (t *tap) Reported(d *transport.Delivery) {
	if o, _ := d.Outcome(); o == transport.Accepted {
		t.accepted(Number(d.Record.Message.Body))
	}
	t.next.Reported(d)
}

// Alone publishes the messages of a load without a database.
func (n *NATS) Alone(ctx context.Context, l *Load, accepted func(number int)) error {
	const inFlight = 2000
	slots := make(chan struct{}, inFlight)
	for i := range l.Messages {
		slots <- struct{}{}
		m := l.Message(i)
		f, err := n.js.PublishMsgAsync(&nats.Msg{Subject: natsSubject, Data: m.Body, Header: nats.Header{jetstream.MsgIDHeader: {fmt.Sprint(i)}}})
		if err != nil {
			return err
		}
		go func() {
			select {
			case <-f.Ok():
				accepted(i)
			case <-f.Err():
			case <-ctx.Done():
			}
			<-slots
		}()
	}
	<-ctx.Done()
	return nil
}

// Verify reads the stream and checks that each message of check's load is there
// once, in order.
func (n *NATS) Verify(ctx context.Context, check *Check, want int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := n.js.OrderedConsumer(ctx, natsStream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	stream, err := n.js.Stream(ctx, natsStream)
	if err != nil {
		return err
	}
	if got := int(stream.CachedInfo().State.Msgs); got != want {
		return fmt.Errorf("the stream has %d messages, want %d", got, want)
	}
	it, err := c.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	for range want {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		check.Take(m.Data())
	}
	return check.Err()
}
