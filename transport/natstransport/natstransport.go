package natstransport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// Options change a [Transport]. nil and the zero value mean the defaults.
type Options struct {
	// Stream is the stream that must take every message: one that another
	// stream takes is refused by the server, and Check asks for it. Defaults to
	// none: whichever stream has the subject.
	Stream string
	// Subjects are looked up by Check, each without wildcards. Defaults to
	// none.
	Subjects []string
	// AckWait is how long an acknowledgement may take before the message is
	// Unknown; 10 ms to 10 min. Defaults to 5 s.
	AckWait time.Duration
	// MaxInFlight bounds the messages that wait for an acknowledgement, over
	// all Sends: a stream refuses more than 10,000 queued ones. 1 to 8192.
	// Defaults to 4096.
	MaxInFlight int
	// Headers renames the headers beside CloudEvents'. Defaults to
	// [transport.HeaderNames]'s.
	Headers transport.HeaderNames
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.AckWait == 0 {
		out.AckWait = 5 * time.Second
	}
	if out.MaxInFlight == 0 {
		out.MaxInFlight = 4096
	}
	return out
}

func (o *Options) validate() error {
	if o.AckWait < 10*time.Millisecond || o.AckWait > 10*time.Minute {
		return fmt.Errorf("%w: AckWait %s: use 10ms to 10m", outbox.ErrInvalidArgument, o.AckWait)
	}
	if o.MaxInFlight < 1 || o.MaxInFlight > 8192 {
		return fmt.Errorf("%w: MaxInFlight %d: use 1 to 8192", outbox.ErrInvalidArgument, o.MaxInFlight)
	}
	for _, s := range o.Subjects {
		if err := checkSubject(s); err != nil {
			return fmt.Errorf("%w: Subjects: %w", outbox.ErrInvalidArgument, err)
		}
	}
	return nil
}

// ConnectOptions are the client options for a connection of this transport;
// append your own. ReconnectBufSize(-1) is required: nothing published during a
// lost connection may go out later. The others are advice: a write that blocks
// for more than 2 s ends the connection, so that a publish does not wait longer
// than that between its lease check and the socket; a server that vanished
// without a word is noticed within 15 s, not in six minutes; and reconnecting
// never stops.
func ConnectOptions() []nats.Option {
	return []nats.Option{
		nats.ReconnectBufSize(-1),
		nats.FlusherTimeout(2 * time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
	}
}

// Transport publishes to JetStream. It is safe for concurrent use.
type Transport struct {
	js      jetstream.JetStream // the caller's, for lookups
	pub     jetstream.Publisher
	nc      *nats.Conn
	opts    Options
	wire    *transport.Wire
	pubOpts []jetstream.PublishOpt
	slots   chan struct{} // one per message that waits for its acknowledgement

	mu      sync.Mutex
	flights map[*nats.Msg]*flight
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Checker   = (*Transport)(nil)
)

// New returns a transport over the connection of js, which stays the caller's.
// It sends nothing and asks the server nothing; [Transport.Check] does.
//
// It publishes through a JetStream context of its own, since acknowledgement
// handlers and timeouts belong to the context: publish options of js do not
// apply. A connection takes one Transport for each route, not one for each
// message: a Transport keeps a subscription until the connection is closed.
//
// Errors are [outbox.ErrInvalidArgument]: an option out of its limits, or a
// connection that buffers during reconnects.
func New(js jetstream.JetStream, opts *Options) (*Transport, error) {
	o := opts.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if js == nil || js.Conn() == nil {
		return nil, fmt.Errorf("%w: no JetStream context: pass jetstream.New(nc)", outbox.ErrInvalidArgument)
	}
	own := []string{jetstream.MsgIDHeader}
	if o.Stream != "" {
		own = append(own, jetstream.ExpectedStreamHeader)
	}
	wire, err := transport.NewWire(transport.NATS, o.Headers, own...)
	if err != nil {
		return nil, err
	}
	t := &Transport{
		js: js, nc: js.Conn(), opts: o, wire: wire,
		slots:   make(chan struct{}, o.MaxInFlight),
		flights: map[*nats.Msg]*flight{},
		// nats.go would publish again by itself, without asking the lease.
		pubOpts: []jetstream.PublishOpt{jetstream.WithRetryAttempts(0)},
	}
	if size := t.nc.Opts.ReconnectBufSize; size > 0 {
		return nil, fmt.Errorf("%w: the NATS connection keeps up to %d bytes during a reconnect and would send them after the lease has ended: connect with nats.ReconnectBufSize(-1), see natstransport.ConnectOptions", outbox.ErrInvalidArgument, size)
	}
	t.pub, err = jetstream.New(t.nc,
		jetstream.WithPublishAsyncAckHandler(t.onAck),
		jetstream.WithPublishAsyncErrHandler(t.onError),
		jetstream.WithPublishAsyncTimeout(o.AckWait),
		// Never reached: a slot is held until nats.go has forgotten the message.
		jetstream.WithPublishAsyncMaxPending(o.MaxInFlight+1))
	if err != nil {
		return nil, fmt.Errorf("jetstream context: %w", err)
	}
	return t, nil
}

// Check asks the server whether publishing can work: a connection, JetStream,
// the stream and subjects of the options, and that the streams acknowledge.
// The errors name what is missing and the remedy.
func (t *Transport) Check(ctx context.Context) error {
	if !t.nc.IsConnected() {
		err := t.nc.LastError()
		if err == nil {
			err = nats.ErrDisconnected
		}
		return fmt.Errorf("not connected to NATS (%s): start the server or correct the URL: %w", t.nc.Status(), err)
	}
	url := t.nc.ConnectedUrlRedacted()
	if !t.nc.HeadersSupported() {
		return fmt.Errorf("NATS server at %s has no headers: use version 2.2 or later, with headers on", url)
	}
	if t.opts.Stream == "" && len(t.opts.Subjects) == 0 {
		if _, err := t.js.AccountInfo(ctx); err != nil {
			return checkError(url, "", err)
		}
		return nil
	}
	streams := map[string]bool{}
	if t.opts.Stream != "" {
		streams[t.opts.Stream] = true
	}
	for _, subject := range t.opts.Subjects {
		name, err := t.js.StreamNameBySubject(ctx, subject)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("no stream takes subject %q on the NATS server at %s: create one, or add the subject to a stream: %w", subject, url, err)
		case err != nil:
			return checkError(url, "", err)
		case t.opts.Stream != "" && name != t.opts.Stream:
			return fmt.Errorf("subject %q belongs to stream %q, not to %q: correct Options.Stream or the streams' subjects", subject, name, t.opts.Stream)
		}
		streams[name] = true
	}
	for name := range streams {
		s, err := t.js.Stream(ctx, name)
		if err != nil {
			return checkError(url, name, err)
		}
		if s.CachedInfo().Config.NoAck {
			return fmt.Errorf("stream %q does not acknowledge (no_ack): no message could ever be known as delivered: turn no_ack off", name)
		}
	}
	return nil
}

func checkError(url, stream string, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("stream %q does not exist on the NATS server at %s: create it with the subjects of the destinations, or correct the name of the stream: %w", stream, url, err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("NATS server at %s has no JetStream: start it with -js or a jetstream block in its configuration: %w", url, err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("the account has no JetStream on the NATS server at %s: turn it on for the account: %w", url, err)
	case errors.Is(err, jetstream.ErrInvalidStreamName):
		return fmt.Errorf("stream name %q is none: use one without spaces, dots and wildcards: %w", stream, err)
	}
	return fmt.Errorf("JetStream of the NATS server at %s: %w", url, err)
}

var defaultWire, _ = transport.NewWire(transport.NATS, transport.HeaderNames{})

// Parse reads the headers of a received message written with the default
// header names. The id of a message without CloudEvents headers (the Raw
// envelope) is its Nats-Msg-Id; without that either, the error is
// [transport.ErrNoEvent]. For other names use transport.NewWire and its Parse
// with [transport.Values].
func Parse(h nats.Header) (transport.Incoming, error) {
	in, err := defaultWire.Parse(transport.Values(h))
	if errors.Is(err, transport.ErrNoEvent) {
		if id := h.Get(jetstream.MsgIDHeader); id != "" {
			in.ID = id
			return in, nil
		}
	}
	return in, err
}
