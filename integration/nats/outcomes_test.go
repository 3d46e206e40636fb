package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/natstransport"
)

func wantOutcome(t *testing.T, got transport.Outcome, err error, want transport.Outcome, says ...string) {
	t.Helper()
	if got != want {
		t.Errorf("outcome %s (%v), want %s", got, err, want)
	}
	for _, s := range says {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v, want it to say %q", err, s)
		}
	}
}

func TestTenThousandMessages(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tr := f.transport(t, nil)
	const n = 10_000
	ds := deliveries(f.name+".many", n)
	var told counter
	for _, d := range ds {
		d.Sink = &told
	}
	tr.Send(t.Context(), ds)
	for i, d := range ds {
		if o, err := d.Outcome(); o != transport.Accepted {
			t.Fatalf("message %d: %s: %v", i, o, err)
		}
	}
	if told.n.Load() != n {
		t.Errorf("%d reports, want %d", told.n.Load(), n)
	}
	// One connection and one Send: the stream's order is the Send's.
	cons, err := f.stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := cons.Fetch(n, jetstream.FetchMaxWait(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for m := range batch.Messages() {
		if i < n && m.Headers().Get(jetstream.MsgIDHeader) != ds[i].Record.ID.String() {
			t.Fatalf("message %d of the stream is %s, want %s", i, m.Data(), ds[i].Record.Message.Body)
		}
		i++
	}
	if i != n || f.count(t) != n {
		t.Errorf("%d messages read, %d in the stream, want %d", i, f.count(t), n)
	}
}

func TestConcurrentSendsShareASmallWindow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tr := f.transport(t, &natstransport.Options{MaxInFlight: 3})
	done := make(chan []*transport.Delivery)
	for range 8 {
		go func() {
			ds := deliveries(f.name+".x", 100)
			tr.Send(t.Context(), ds)
			done <- ds
		}()
	}
	for range 8 {
		for _, d := range <-done {
			if o, err := d.Outcome(); o != transport.Accepted {
				t.Errorf("outcome %s: %v", o, err)
			}
		}
	}
	if n := f.count(t); n != 800 {
		t.Errorf("%d messages in the stream, want 800", n)
	}
}

func TestSameIDIsStoredOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tr := f.transport(t, nil)
	rec := record(f.name+".a", "once")
	for range 3 {
		o, err := sendOne(t, tr, rec)
		wantOutcome(t, o, err, transport.Accepted)
	}
	if n := f.count(t); n != 1 {
		t.Errorf("%d messages in the stream, want 1: same Nats-Msg-Id", n)
	}
}

func TestDestinations(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tr := f.transport(t, nil)
	for subject, says := range map[string]string{
		f.name + ".a b":    "space",
		f.name + ".a\x7f":  "control byte",
		f.name + ".*":      "wildcard",
		f.name + ".>":      "wildcard",
		f.name + "..a":     "empty token",
		f.name + ".":       "empty token",
		"." + f.name:       "empty token",
		"$JS.API.INFO":     "server itself",
		"$SYS.REQ.ACCOUNT": "server itself",
	} {
		rec := record(f.name+".x", "")
		rec.Message.Destination = subject
		o, err := sendOne(t, tr, rec)
		wantOutcome(t, o, err, transport.Permanent, fmt.Sprintf("%q", subject), says)
	}
	// The server would end the connection over a longer line.
	rec := record(f.name+".x", "")
	rec.Message.Destination = f.name + "." + strings.Repeat("a", 5000)
	o, err := sendOne(t, tr, rec)
	wantOutcome(t, o, err, transport.Permanent, "limit 1024")
	o, err = sendOne(t, tr, record(f.name+".a*b.c>d.ü", "")) // literal in NATS
	wantOutcome(t, o, err, transport.Accepted)
	if n := f.count(t); n != 1 {
		t.Errorf("%d messages in the stream, want the one with a valid subject", n)
	}
}

func TestHeadersNATSCannotCarry(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tr := f.transport(t, nil)
	for _, h := range []outbox.Header{
		{Name: "Line", Value: []byte("a\nb")},
		{Name: "Return", Value: []byte("a\rb")},
		{Name: "Nul", Value: []byte("a\x00b")},
		{Name: "Lead", Value: []byte(" a")},
		{Name: "Trail", Value: []byte("a\t")},
		{Name: "Has Space", Value: []byte("a")},
		{Name: "Has:Colon", Value: []byte("a")},
		{Name: "Ümlaut", Value: []byte("a")},
		{Name: "Nats-Msg-Id", Value: []byte("mine")},
		{Name: "nats-batch-id", Value: []byte("b")},
		{Name: "Nats-Trace-Only", Value: []byte("true")},
		{Name: "ce-source", Value: []byte("/mine")},
		{Name: "Postrider-Epoch", Value: []byte("99")},
	} {
		rec := record(f.name+".h", "")
		rec.Message.Headers = []outbox.Header{h}
		o, err := sendOne(t, tr, rec)
		wantOutcome(t, o, err, transport.Permanent, fmt.Sprintf("%q", h.Name))
	}
	rec := record(f.name+".h", "")
	rec.Message.Envelope = outbox.Structured
	o, err := sendOne(t, tr, rec)
	wantOutcome(t, o, err, transport.Permanent, "structured", "binary or raw")
	if n := f.count(t); n != 0 {
		t.Errorf("%d messages in the stream, want none", n)
	}
}

// Whatever header passes is read back unchanged.
func TestHeadersThatPassAreUnchanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tr := f.transport(t, nil)
	rec := record(f.name+".h", "")
	want := map[string][]string{}
	for c := range 256 {
		name, value := "Value", []byte{'<', byte(c), '>'}
		if c == '\r' || c == '\n' || c == 0 {
			continue
		}
		rec.Message.Headers = append(rec.Message.Headers, outbox.Header{Name: name, Value: value})
		want[name] = append(want[name], string(value))
		if c > ' ' && c < 0x7f && !strings.ContainsRune("\"()/,:;<=>?@[\\]{}", rune(c)) {
			name = "N" + string(rune(c))
			rec.Message.Headers = append(rec.Message.Headers, outbox.Header{Name: name, Value: []byte("v")})
			want[name] = append(want[name], "v")
		}
	}
	o, err := sendOne(t, tr, rec)
	wantOutcome(t, o, err, transport.Accepted)
	got := f.stored(t)[0].Header
	for name, vs := range want {
		if fmt.Sprintf("%q", got[name]) != fmt.Sprintf("%q", vs) {
			t.Errorf("header %s came back as %q, want %q", name, got[name], vs)
		}
	}
}

func TestNoStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tr := f.transport(t, nil)
	nowhere, here := testenv.Name("nowhere."), record(f.name+".a", "")
	ds := append(deliveries(nowhere, 3), delivery(here))
	tr.Send(t.Context(), ds)
	for _, d := range ds[:3] {
		o, err := d.Outcome()
		wantOutcome(t, o, err, transport.Unroutable, fmt.Sprintf("%q", nowhere), "create one")
	}
	o, err := ds[3].Outcome()
	wantOutcome(t, o, err, transport.Accepted)
}

// The subject has no stream for a moment, as in a leader election: the
// transport tries again by itself and asks the lease again.
func TestStreamAppearsDuringTheSend(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tr := f.transport(t, nil)
	late := testenv.Name("late.")
	ds := deliveries(late, 1)
	asked := 0
	ds[0].Lease = leaseFunc(func() bool {
		if asked++; asked == 2 { // once per publish, and before it
			cfg, err := f.stream.Info(t.Context())
			if err == nil {
				cfg.Config.Subjects = append(cfg.Config.Subjects, late)
				_, err = f.js.UpdateStream(t.Context(), cfg.Config)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return true
	})
	tr.Send(t.Context(), ds)
	o, err := ds[0].Outcome()
	wantOutcome(t, o, err, transport.Accepted)
	if asked != 2 {
		t.Errorf("the lease was asked %d times, want once per publish", asked)
	}
}

type leaseFunc func() bool

func (f leaseFunc) Live() bool { return f() }

// The context ends while the transport waits to try a subject again: what
// nobody took has not gone out.
func TestContextEndsBetweenTries(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ds := deliveries(testenv.Name("nowhere."), 5)
	before := f.nc.Stats().InMsgs
	go func() {
		for f.nc.Stats().InMsgs < before+uint64(len(ds)) && ctx.Err() == nil { // answers "no responders"
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // the transport takes them, and waits for 250 ms
		cancel()
	}()
	start := time.Now()
	f.transport(t, nil).Send(ctx, ds)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("Send returned %s after its context had ended", took)
	}
	for _, d := range ds {
		o, err := d.Outcome()
		wantOutcome(t, o, err, transport.Unsent)
	}
}

func TestExpectedStream(t *testing.T) {
	t.Parallel()
	f, other := newFixture(t, nil), newFixture(t, nil)
	tr := f.transport(t, &natstransport.Options{Stream: f.name})
	o, err := sendOne(t, tr, record(f.name+".a", ""))
	wantOutcome(t, o, err, transport.Accepted)
	o, err = sendOne(t, tr, record(other.name+".a", ""))
	wantOutcome(t, o, err, transport.Unroutable, other.name)
	if n := other.count(t); n != 0 {
		t.Errorf("%d messages in the other stream, want none", n)
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	tr := f.transport(t, nil)
	o, err := sendOne(t, tr, record(f.name+".a", strings.Repeat("x", 3000)))
	wantOutcome(t, o, err, transport.Permanent, "message size exceeds")
	big := record(f.name+".a", "")
	big.Message.Body = make([]byte, f.nc.MaxPayload()+1)
	o, err = sendOne(t, tr, big)
	wantOutcome(t, o, err, transport.Permanent, "max_payload", fmt.Sprint(f.nc.MaxPayload()))
	headers := record(f.name+".a", "")
	headers.Message.Headers = []outbox.Header{{Name: "Big", Value: []byte(strings.Repeat("x", 70_000))}}
	o, err = sendOne(t, tr, headers)
	wantOutcome(t, o, err, transport.Permanent)
	o, err = sendOne(t, tr, record(f.name+".a", "small"))
	wantOutcome(t, o, err, transport.Accepted)
	if n := f.count(t); n != 1 {
		t.Errorf("%d messages in the stream, want the small one", n)
	}
}

// A full stream holds the route back and spends no attempt; a full subject
// concerns its own messages.
func TestFullStream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says string
		limit      func(*jetstream.StreamConfig)
		want       transport.Outcome
	}{
		{"messages", "maximum messages exceeded", func(c *jetstream.StreamConfig) { c.MaxMsgs = 3 }, transport.Unreachable},
		{"bytes", "maximum bytes exceeded", func(c *jetstream.StreamConfig) { c.MaxBytes = 1200 }, transport.Unreachable},
		{"subject", "maximum messages per subject exceeded", func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 3, true
		}, transport.Refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(s *jetstream.StreamConfig) { s.Discard = jetstream.DiscardNew; c.limit(s) })
			tr := f.transport(t, nil)
			var o transport.Outcome
			var err error
			for range 20 {
				if o, err = sendOne(t, tr, record(f.name+".a", "x")); o != transport.Accepted {
					break
				}
			}
			wantOutcome(t, o, err, c.want, c.says)
			if err := f.stream.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			o, err = sendOne(t, tr, record(f.name+".a", "x"))
			wantOutcome(t, o, err, transport.Accepted)
		})
	}
}

// A full server is no fault of the message: no attempt is spent, and the route
// waits.
func TestFullServerIsUnreachable(t *testing.T) {
	t.Parallel()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 16 << 10, JetStreamMaxMemory: -1})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready after 10 s")
	}
	_, js := connect(t, ns.ClientURL())
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := natstransport.New(js, nil)
	if err != nil {
		t.Fatal(err)
	}
	var o transport.Outcome
	for range 10 {
		if o, err = sendOne(t, tr, record("s.a", strings.Repeat("x", 4096))); o != transport.Accepted {
			break
		}
	}
	wantOutcome(t, o, err, transport.Unreachable, "insufficient resources")
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	o, err = sendOne(t, tr, record("s.a", ""))
	wantOutcome(t, o, err, transport.Accepted)
}

func TestLeaseEndedNothingGoesOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tr := f.transport(t, nil)
	ds := deliveries(f.name+".a", 10)
	lease := &lease{left: 4}
	for _, d := range ds {
		d.Lease = lease
	}
	tr.Send(t.Context(), ds)
	for i, d := range ds {
		o, err := d.Outcome()
		if i < 4 {
			wantOutcome(t, o, err, transport.Accepted)
			continue
		}
		wantOutcome(t, o, err, transport.Unsent)
		if !errors.Is(err, transport.ErrLeaseEnded) {
			t.Errorf("message %d: error %v, want ErrLeaseEnded", i, err)
		}
	}
	if n := f.count(t); n != 4 {
		t.Errorf("%d messages in the stream, want the 4 sent under the lease", n)
	}
	// The window is not used up by what was not sent.
	tr = f.transport(t, &natstransport.Options{MaxInFlight: 1})
	lease.left = 0
	tr.Send(t.Context(), []*transport.Delivery{{Record: record(f.name+".a", ""), Lease: lease}})
	o, err := sendOne(t, tr, record(f.name+".a", ""))
	wantOutcome(t, o, err, transport.Accepted)
}

// lease is live for the first left questions.
type lease struct{ left int }

func (l *lease) Live() bool { l.left--; return l.left >= 0 }

func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ds := deliveries(f.name+".a", 3)
	f.transport(t, nil).Send(ctx, ds)
	for _, d := range ds {
		o, err := d.Outcome()
		wantOutcome(t, o, err, transport.Unsent)
	}
	if n := f.count(t); n != 0 {
		t.Errorf("%d messages in the stream, want none", n)
	}
}

// A subject on which somebody listens and answers nothing stands for a stream
// that is silent.
func silent(t *testing.T, f *fixture, heard func()) string {
	t.Helper()
	subject := testenv.Name("silent.")
	if _, err := f.nc.Subscribe(subject, func(*natsgo.Msg) { heard() }); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return subject
}

func TestNoAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	t.Run("after AckWait", func(t *testing.T) {
		t.Parallel()
		subject := silent(t, f, func() {})
		// A window of one: the slots of what was given up come back.
		tr := f.transport(t, &natstransport.Options{AckWait: 2 * time.Second, MaxInFlight: 1})
		ds := append(deliveries(subject, 2), delivery(record(f.name+".a", "")))
		tr.Send(t.Context(), ds)
		for _, d := range ds[:2] {
			o, err := d.Outcome()
			wantOutcome(t, o, err, transport.Unknown, "2s", subject)
		}
		o, err := ds[2].Outcome()
		wantOutcome(t, o, err, transport.Accepted)
	})
	t.Run("when the context ends", func(t *testing.T) {
		t.Parallel()
		tr := f.transport(t, &natstransport.Options{AckWait: time.Minute, MaxInFlight: 2})
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		heard := 0
		subject := silent(t, f, func() {
			if heard++; heard == 2 {
				cancel(why)
			}
		})
		ds := deliveries(subject, 3)
		start := time.Now()
		tr.Send(ctx, ds)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("Send returned %s after its context had ended", took)
		}
		for _, d := range ds[:2] {
			o, err := d.Outcome()
			wantOutcome(t, o, err, transport.Unknown)
			if !errors.Is(err, why) {
				t.Errorf("error %v, want the cause of the context", err)
			}
		}
		o, err := ds[2].Outcome() // had no room in the window
		wantOutcome(t, o, err, transport.Unsent)
	})
}

func TestAnswerThatIsNoAcknowledgement(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	subject := testenv.Name("service.")
	if _, err := f.nc.Subscribe(subject, func(m *natsgo.Msg) { m.Respond([]byte("hello")) }); err != nil {
		t.Fatal(err)
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	o, err := sendOne(t, f.transport(t, nil), record(subject, ""))
	wantOutcome(t, o, err, transport.Unknown, subject, "no acknowledgement of a stream")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	other := newFixture(t, nil)
	mute := newFixture(t, func(c *jetstream.StreamConfig) { c.NoAck = true })
	for name, c := range map[string]struct {
		opts natstransport.Options
		says string // "" = fine
	}{
		"nothing asked":       {natstransport.Options{}, ""},
		"stream":              {natstransport.Options{Stream: f.name}, ""},
		"stream and subject":  {natstransport.Options{Stream: f.name, Subjects: []string{f.name + ".a"}}, ""},
		"no such stream":      {natstransport.Options{Stream: "absent"}, `stream "absent" does not exist`},
		"bad stream name":     {natstransport.Options{Stream: "a.b"}, `stream name "a.b"`},
		"no such subject":     {natstransport.Options{Subjects: []string{f.name}}, `no stream takes subject "` + f.name + `"`},
		"subject elsewhere":   {natstransport.Options{Stream: f.name, Subjects: []string{other.name + ".a"}}, `belongs to stream "` + other.name + `"`},
		"stream without acks": {natstransport.Options{Stream: mute.name}, "no_ack"},
		"subject, no acks":    {natstransport.Options{Subjects: []string{mute.name + ".a"}}, "no_ack"},
	} {
		err := f.transport(t, &c.opts).Check(t.Context())
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for says, o := range map[string]*natstransport.Options{
		"AckWait 1ms":      {AckWait: time.Millisecond},
		"AckWait 1h0m0s":   {AckWait: time.Hour},
		"MaxInFlight -1":   {MaxInFlight: -1},
		"MaxInFlight 9000": {MaxInFlight: 9000},
		`"a..b"`:           {Subjects: []string{"a..b"}},
		`"Nats-Msg-Id"`:    {Headers: transport.HeaderNames{Lane: "Nats-Msg-Id"}},
	} {
		if _, err := natstransport.New(f.js, o); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("New: %v, want an invalid argument that says %s", err, says)
		}
	}
	if _, err := natstransport.New(nil, nil); !errors.Is(err, outbox.ErrInvalidArgument) {
		t.Errorf("New without a context: %v", err)
	}
	// The default of nats.go buffers during a reconnect.
	nc, err := natsgo.Connect(testenv.NATS(t))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := natstransport.New(js, nil); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "ReconnectBufSize(-1)") {
		t.Errorf("New over a connection that buffers: %v, want an error with the remedy", err)
	}
}
