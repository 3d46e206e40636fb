package nats_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
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

var quickly = natsgo.ReconnectWait(20 * time.Millisecond)

// ownStream makes a stream on a server of the test's own.
func ownStream(t *testing.T, url string, opts ...natsgo.Option) *fixture {
	t.Helper()
	nc, js := connect(t, url, opts...)
	name := testenv.Name("T")
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{nc: nc, js: js, stream: s, name: name}
}

func waitConnected(t *testing.T, nc *natsgo.Conn) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !nc.IsConnected() {
		if time.Now().After(deadline) {
			t.Fatalf("not connected again after 30 s: %v", nc.LastError())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// The server is killed while messages are on their way, three times. Whatever
// was reported accepted is in the stream, whatever was not is sent again, and
// in the end each is there.
func TestServerKilledInMidFlight(t *testing.T) {
	t.Parallel()
	p := startProcess(t)
	f := ownStream(t, p.url(), quickly)
	tr := f.transport(t, &natstransport.Options{AckWait: 2 * time.Second})
	const senders, each, batch = 4, 3000, 250
	var mu sync.Mutex
	accepted := map[outbox.ID]bool{}
	seen := map[transport.Outcome]int{}
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			left := make([]*outbox.Record, each)
			for i := range left {
				left[i] = record(f.name+".a", "x")
			}
			for len(left) > 0 && t.Context().Err() == nil {
				ds := make([]*transport.Delivery, min(batch, len(left)))
				for i := range ds {
					ds[i] = delivery(left[i])
				}
				tr.Send(t.Context(), ds)
				again := left[len(ds):len(left):len(left)]
				down := false
				mu.Lock()
				for _, d := range ds {
					o, err := d.Outcome()
					seen[o]++
					switch o {
					case transport.Accepted:
						accepted[d.Record.ID] = true
					case transport.Unknown, transport.Unreachable:
						again = append(again, d.Record)
						down = down || o == transport.Unreachable
					default:
						t.Errorf("outcome %s during a crash: %v", o, err)
					}
				}
				mu.Unlock()
				left = again
				if down {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	for kill := 1; kill <= 3; kill++ {
		for {
			mu.Lock()
			n := len(accepted)
			mu.Unlock()
			if n >= kill*senders*each/5 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		p.kill()
		time.Sleep(50 * time.Millisecond)
		p.start(t)
	}
	wg.Wait()
	waitConnected(t, f.nc)
	stored := map[string]bool{}
	cons, err := f.stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := cons.Fetch(int(f.count(t)), jetstream.FetchMaxWait(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for m := range msgs.Messages() {
		stored[m.Headers().Get(jetstream.MsgIDHeader)] = true
	}
	lost := 0
	for id := range accepted {
		if !stored[id.String()] {
			lost++
		}
	}
	t.Logf("outcomes %v", seen)
	if lost > 0 || len(accepted) != senders*each || len(stored) != senders*each {
		t.Errorf("%d accepted, %d distinct ids in the stream, want %d; %d accepted and not in the stream", len(accepted), len(stored), senders*each, lost)
	}
	if seen[transport.Unknown]+seen[transport.Unreachable] == 0 {
		t.Error("no message was on its way when the server was killed: the test has shown nothing")
	}
}

// Nothing that was handed over while the connection was down goes out later.
func TestNothingGoesOutAfterAnOutage(t *testing.T) {
	t.Parallel()
	p := startProcess(t)
	f := ownStream(t, p.url(), quickly)
	tr := f.transport(t, nil)
	o, err := sendOne(t, tr, record(f.name+".a", "before"))
	wantOutcome(t, o, err, transport.Accepted)
	p.kill()
	deadline := time.Now().Add(time.Minute)
	for f.nc.IsConnected() && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	ds := deliveries(f.name+".a", 100)
	start := time.Now()
	tr.Send(t.Context(), ds)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("Send without a server took %s, want an answer at once", took)
	}
	for _, d := range ds {
		o, err := d.Outcome()
		wantOutcome(t, o, err, transport.Unreachable, "not connected to NATS")
	}
	if err := tr.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "not connected to NATS") {
		t.Errorf("Check without a server: %v", err)
	}
	p.start(t)
	waitConnected(t, f.nc)
	if err := f.nc.FlushTimeout(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if n := f.count(t); n != 1 {
		t.Errorf("%d messages in the stream, want the one sent before the outage", n)
	}
	o, err = sendOne(t, tr, ds[0].Record)
	wantOutcome(t, o, err, transport.Accepted)
}

// The line stops without an error, as when a switch dies: what was handed over
// is unknown, and the next connection works.
func TestLineGoesSilent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	line := startProxy(t, f.nc.ConnectedAddr())
	nc, js := connect(t, line.url(), quickly)
	tr, err := natstransport.New(js, &natstransport.Options{AckWait: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	o, err := sendOne(t, tr, record(f.name+".a", "before"))
	wantOutcome(t, o, err, transport.Accepted)
	line.hold()
	rec := record(f.name+".a", "during")
	o, err = sendOne(t, tr, rec)
	wantOutcome(t, o, err, transport.Unknown, "3s")
	line.cut()
	line.flow()
	deadline := time.Now().Add(time.Minute)
	for {
		o, err = sendOne(t, tr, rec)
		if o == transport.Accepted {
			break
		}
		if o != transport.Unreachable && o != transport.Unknown || time.Now().After(deadline) {
			t.Fatalf("after the line is back: %s: %v (connection %s)", o, err, nc.Status())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := f.count(t); n != 2 {
		t.Errorf("%d messages in the stream, want 2", n)
	}
}

// The connection ends between publish and acknowledgement.
func TestConnectionCutBeforeTheAcknowledgement(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	line := startProxy(t, f.nc.ConnectedAddr())
	_, js := connect(t, line.url(), quickly)
	tr, err := natstransport.New(js, &natstransport.Options{AckWait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	o, err := sendOne(t, tr, record(f.name+".a", "before"))
	wantOutcome(t, o, err, transport.Accepted)
	line.hold()
	time.AfterFunc(100*time.Millisecond, line.cut)
	start := time.Now()
	ds := deliveries(f.name+".a", 20)
	tr.Send(t.Context(), ds)
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("Send took %s after the connection had ended, want an answer at once", took)
	}
	for _, d := range ds {
		o, err := d.Outcome()
		wantOutcome(t, o, err, transport.Unknown, "connection lost before the acknowledgement")
	}
}

func TestClosedConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	nc, js := connect(t, "nats://"+f.nc.ConnectedAddr())
	tr, err := natstransport.New(js, nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := sendOne(t, tr, record(f.name+".a", ""))
	wantOutcome(t, o, err, transport.Accepted)
	nc.Close()
	o, err = sendOne(t, tr, record(f.name+".a", ""))
	wantOutcome(t, o, err, transport.Unreachable, "CLOSED")
	if err := tr.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "CLOSED") {
		t.Errorf("Check of a closed connection: %v", err)
	}
}

func TestServerWithoutJetStream(t *testing.T) {
	t.Parallel()
	s, err := testenv.EmbeddedNATS(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	_, js := connect(t, s.URL)
	for name, o := range map[string]*natstransport.Options{"nothing": nil, "stream": {Stream: "S"}, "subject": {Subjects: []string{"a.b"}}} {
		tr, err := natstransport.New(js, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "has no JetStream: start it with -js") {
			t.Errorf("Check asked for %s: %v, want an error with the remedy", name, err)
		}
	}
	tr, err := natstransport.New(js, nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := sendOne(t, tr, record("a.b", ""))
	wantOutcome(t, o, err, transport.Unreachable, "without JetStream")
}

// A publish that the account may not make gets no answer; the reason stands in
// the error all the same.
func TestPermissionDeniedIsNamed(t *testing.T) {
	t.Parallel()
	nc, js := connect(t, embedded(t, restricted()), natsgo.UserInfo("limited", "pw"))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"ok.>", "forbidden.>"}}); err != nil {
		t.Fatal(err)
	}
	tr, err := natstransport.New(js, &natstransport.Options{AckWait: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	o, err := sendOne(t, tr, record("ok.a", ""))
	wantOutcome(t, o, err, transport.Accepted)
	o, err = sendOne(t, tr, record("forbidden.a", ""))
	wantOutcome(t, o, err, transport.Unknown, "forbidden.a", "ermissions Violation")
	if err := nc.LastError(); !errors.Is(err, natsgo.ErrPermissionViolation) {
		t.Errorf("the connection's last error is %v", err)
	}
}

// A server that does not say whether a stream takes the subject leaves the message to
// be sent again: nobody has to unpark its key when the stream has a leader again.
func TestServerThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*server.Options)
		says   string
	}{
		"no leader of JetStream": {func(o *server.Options) {
			o.ServerName = "lone"
			o.Cluster = server.ClusterOpts{Name: "C", Host: "127.0.0.1", Port: server.RANDOM_PORT}
			o.Routes = server.RoutesFromStr("nats://127.0.0.1:1") // a peer that never comes
		}, "may have no leader"},
		"no right to ask": {restricted("$JS.API.STREAM.NAMES"), "$JS.API.STREAM.NAMES"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, js := connect(t, embedded(t, c.change), natsgo.UserInfo("limited", "pw"))
			tr, err := natstransport.New(js, nil)
			if err != nil {
				t.Fatal(err)
			}
			o, err := sendOne(t, tr, record("ok.a", ""))
			wantOutcome(t, o, err, transport.Unreachable, "ok.a", c.says)
		})
	}
}

// Credentials that are refused for a while, as during a rotation, do not end
// the connection: it is back when they are good again.
func TestRefusedCredentialsDoNotEndTheConnection(t *testing.T) {
	t.Parallel()
	opts := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), Username: "u", Password: "good"}
	ns, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("embedded server is not ready after 10 s")
	}
	port := ns.Addr().(*net.TCPAddr).Port
	var refused atomic.Int64
	count := natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
		if errors.Is(err, natsgo.ErrAuthorization) {
			refused.Add(1)
		}
	})
	f := ownStream(t, ns.ClientURL(), natsgo.UserInfo("u", "good"), quickly, count)
	tr := f.transport(t, nil)
	change := func(password string) {
		t.Helper()
		o := opts.Clone()
		o.Port, o.Password = port, password
		if err := ns.ReloadOptions(o); err != nil {
			t.Fatal(err)
		}
	}
	change("other")
	for deadline := time.Now().Add(time.Minute); refused.Load() < 4; time.Sleep(5 * time.Millisecond) {
		if f.nc.IsClosed() || time.Now().After(deadline) {
			t.Fatalf("after %d refusals the connection is %s", refused.Load(), f.nc.Status())
		}
	}
	change("good")
	waitConnected(t, f.nc)
	o, err := sendOne(t, tr, record(f.name+".a", ""))
	wantOutcome(t, o, err, transport.Accepted)
}

// Send is given up in the middle: it returns, and nothing is reported later.
func TestSendReportsNothingAfterItReturned(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tr := f.transport(t, nil)
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		ds := deliveries(f.name+".a", 300)
		var told counter
		for _, d := range ds {
			d.Sink = &told
		}
		time.AfterFunc(time.Millisecond, cancel)
		tr.Send(ctx, ds)
		n := told.n.Load()
		reported := 0
		for _, d := range ds {
			if o, _ := d.Outcome(); o != transport.Unsent {
				reported++
			}
		}
		if int64(reported) != n {
			t.Fatalf("%d reports, %d outcomes", n, reported)
		}
		f.count(t) // the server has answered everything that was before this
		if told.n.Load() != n {
			t.Fatalf("%d reports after Send had returned", told.n.Load()-n)
		}
		cancel()
	}
}
