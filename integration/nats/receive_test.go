package nats_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/natstransport"
	"github.com/postrider/postrider/transport/receiver"
)

// ledger is a consumer's database: effects are rows of a table without a key.
type ledger struct {
	db *sql.DB
	in *inbox.Inbox[sqlstore.Tx]
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	db, err := sql.Open("pgx", testenv.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE effects (num bigserial, message text)`); err != nil {
		t.Fatal(err)
	}
	in, err := inbox.New[sqlstore.Tx](s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &ledger{db, in}
}

// effects are the bodies in the order of their effects.
func (l *ledger) effects(t *testing.T) (list []string) {
	t.Helper()
	rows, err := l.db.QueryContext(t.Context(), `SELECT message FROM effects ORDER BY num`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// receiver writes an effect, unless fail has an error for the message.
func (l *ledger) receiver(t *testing.T, fail func(receiver.Message) error, opts receiver.Options[sqlstore.Tx]) *receiver.Receiver[sqlstore.Tx] {
	t.Helper()
	opts.Consumer = "ledger"
	opts.BackoffMin, opts.BackoffMax = time.Millisecond, 5*time.Millisecond
	r, err := receiver.New(l.in, sqlstore.Begin(l.db, nil), func(ctx context.Context, tx sqlstore.Tx, m receiver.Message) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO effects (message) VALUES ($1)`, string(m.Body)); err != nil {
			return err
		}
		return fail(m) // after the write, which is to leave no trace
	}, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (f *fixture) consumer(t *testing.T, cfg jetstream.ConsumerConfig) jetstream.Consumer {
	t.Helper()
	cfg.Durable, cfg.FilterSubject = "ledger", f.name+".orders"
	if cfg.AckPolicy == 0 {
		cfg.AckPolicy = jetstream.AckExplicitPolicy
	}
	c, err := f.stream.CreateConsumer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// publish puts n messages into the stream, each of them twice.
func (f *fixture) publish(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		id := outbox.NewID().String()
		f.put(t, id, strconv.Itoa(i))
		f.put(t, id, strconv.Itoa(i))
	}
}

func (f *fixture) put(t *testing.T, id, body string) {
	t.Helper()
	msg := natsgo.NewMsg(f.name + ".orders")
	msg.Data = []byte(body)
	for k, v := range map[string]string{"ce-specversion": "1.0", "ce-id": id, "ce-source": "/shop", "ce-type": "t.v1"} {
		msg.Header.Set(k, v)
	}
	if _, err := f.js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

// waits returns when somebody asks the consumer for messages.
func waits(t *testing.T, c jetstream.Consumer) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		switch info, err := c.Info(t.Context()); {
		case err != nil:
			t.Error(err)
			return
		case info.NumWaiting > 0:
			return
		case time.Now().After(end):
			t.Error("nobody has asked for messages in a minute")
			return
		}
	}
}

// drained waits until nothing is left for the consumer.
func drained(t *testing.T, c jetstream.Consumer) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		info, err := c.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.NumPending == 0 && info.NumAckPending == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a minute has passed, %d messages wait, %d are not acknowledged", info.NumPending, info.NumAckPending)
		}
	}
}

// receive runs a receiver until stop is called.
func receive(t *testing.T, c jetstream.Consumer, r *receiver.Receiver[sqlstore.Tx], opts *natstransport.ReceiveOptions) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- natstransport.Receive(ctx, c, r, opts) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Receive: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// One effect a message, in the stream's order, though messages come twice,
// handlers fail and the receiver is stopped and started again.
func TestReceive(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, nil), newLedger(t)
	c := f.consumer(t, jetstream.ConsumerConfig{MaxAckPending: 1})
	const n = 60
	f.publish(t, n)
	var calls atomic.Int64
	r := l.receiver(t, func(receiver.Message) error {
		if calls.Add(1)%3 == 0 {
			return errors.New("refused")
		}
		return nil
	}, receiver.Options[sqlstore.Tx]{MaxAttempts: -1})
	for i := range 3 {
		stop := receive(t, c, r, nil)
		for end := time.Now().Add(time.Minute); len(l.effects(t)) < (i+1)*n/4; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("a minute has passed without the effects")
			}
		}
		stop()
	}
	receive(t, c, r, nil)
	drained(t, c)
	got := l.effects(t)
	if len(got) != n {
		t.Fatalf("%d effects of %d messages: %v", len(got), n, got)
	}
	for i, s := range got {
		if s != strconv.Itoa(i) {
			t.Fatalf("effect %d is that of message %s", i, s)
		}
	}
}

// Many at once: still one effect each. It asks for no more than the consumer gives.
func TestReceiveAtOnce(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, nil), newLedger(t)
	c := f.consumer(t, jetstream.ConsumerConfig{MaxRequestBatch: 5, MaxRequestExpires: 100 * time.Millisecond})
	const n = 100
	f.publish(t, n)
	r := l.receiver(t, func(receiver.Message) error { return nil }, receiver.Options[sqlstore.Tx]{})
	receive(t, c, r, &natstransport.ReceiveOptions{Concurrency: 8})
	drained(t, c)
	seen := map[string]int{}
	for _, s := range l.effects(t) {
		seen[s]++
	}
	for i := range n {
		if seen[strconv.Itoa(i)] != 1 {
			t.Errorf("message %d has %d effects", i, seen[strconv.Itoa(i)])
		}
	}
}

// A message that cannot be handled goes to the dead letters, once, with its
// headers and the reason, and nobody waits for it.
func TestReceivePoison(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, nil), newLedger(t)
	c := f.consumer(t, jetstream.ConsumerConfig{MaxAckPending: 1})
	f.publish(t, 3)
	if _, err := f.js.PublishMsg(t.Context(), &natsgo.Msg{Subject: f.name + ".orders", Data: []byte("no event")}); err != nil {
		t.Fatal(err)
	}
	r := l.receiver(t, func(m receiver.Message) error {
		if age := time.Since(m.Stored); age < -time.Minute || age > time.Minute {
			t.Errorf("the message was stored at %v, says the receiver", m.Stored)
		}
		if string(m.Body) == "1" {
			return errors.New("no such\ncustomer")
		}
		return nil
	}, receiver.Options[sqlstore.Tx]{MaxAttempts: 3, Dead: natstransport.DeadSubject[sqlstore.Tx](f.js, f.name+".dead")})
	receive(t, c, r, nil)
	drained(t, c)
	if got := fmt.Sprint(l.effects(t)); got != "[0 2]" {
		t.Errorf("effects: got %s, want [0 2]", got)
	}
	var dead []string
	for _, m := range f.stored(t) {
		if m.Subject == f.name+".dead" {
			dead = append(dead, string(m.Data)+": "+m.Header.Get(natstransport.ReasonHeader))
			if string(m.Data) == "1" && m.Header.Get("ce-id") == "" {
				t.Error("the dead letter has lost its headers")
			}
		}
	}
	if len(dead) != 2 || dead[0] != "1: no such customer" || !strings.HasPrefix(dead[1], "no event: ") {
		t.Errorf("dead letters: got %q", dead)
	}
}

// What a header asked of the server that took the message is not asked again of the
// stream of dead letters: it would refuse the dead letter, and never get it.
func TestDeadLetterInAnotherStream(t *testing.T) {
	t.Parallel()
	f, l, other := newFixture(t, nil), newLedger(t), newFixture(t, nil)
	c := f.consumer(t, jetstream.ConsumerConfig{})
	if out, err := sendOne(t, f.transport(t, &natstransport.Options{Stream: f.name}), record(f.name+".orders", "1")); out != transport.Accepted {
		t.Fatal(out, err)
	}
	r := l.receiver(t, func(receiver.Message) error { return receiver.Permanent(errors.New("no such customer")) },
		receiver.Options[sqlstore.Tx]{Dead: natstransport.DeadSubject[sqlstore.Tx](f.js, other.name+".dead")})
	receive(t, c, r, nil)
	drained(t, c)
	dead := other.stored(t)
	if len(dead) != 1 || dead[0].Header.Get("ce-id") == "" || dead[0].Header.Get(natstransport.ReasonHeader) != "no such customer" {
		t.Errorf("dead letters: got %+v", dead)
	}
}

// A message so large that the server takes no reason beside it is kept without one.
func TestLargeDeadLetter(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, nil), newLedger(t)
	c := f.consumer(t, jetstream.ConsumerConfig{})
	body := strings.Repeat("x", int(f.nc.MaxPayload())-1000)
	if out, err := sendOne(t, f.transport(t, nil), record(f.name+".orders", body)); out != transport.Accepted {
		t.Fatal(out, err)
	}
	r := l.receiver(t, func(receiver.Message) error { return receiver.Permanent(errors.New(strings.Repeat("no ", 1000))) },
		receiver.Options[sqlstore.Tx]{Dead: natstransport.DeadSubject[sqlstore.Tx](f.js, f.name+".dead")})
	receive(t, c, r, nil)
	drained(t, c)
	dead := f.stored(t)
	if len(dead) != 2 || dead[1].Header.Get("ce-id") == "" || string(dead[1].Data) != body {
		t.Errorf("%d messages are stored, want the message and its dead letter", len(dead))
	}
}

// The server hears that a slow handler is at it, and delivers to nobody else.
func TestReceiveSlowHandler(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, nil), newLedger(t)
	c := f.consumer(t, jetstream.ConsumerConfig{AckWait: 5 * time.Second})
	f.publish(t, 1)
	var attempts atomic.Int64
	r := l.receiver(t, func(m receiver.Message) error {
		if m.Attempt > 1 {
			attempts.Add(1)
		}
		time.Sleep(11 * time.Second)
		return nil
	}, receiver.Options[sqlstore.Tx]{})
	receive(t, c, r, &natstransport.ReceiveOptions{Concurrency: 4})
	drained(t, c)
	if n := attempts.Load(); n != 0 {
		t.Errorf("the message was delivered %d times more while its handler ran", n)
	}
}

// A handler that ends its goroutine does not keep its message: it comes again, and
// Receive goes on.
func TestReceiveHandlerEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, nil), newLedger(t)
	c := f.consumer(t, jetstream.ConsumerConfig{AckWait: 300 * time.Millisecond})
	f.publish(t, 1)
	var exits atomic.Int32
	stop := receive(t, c, l.receiver(t, func(receiver.Message) error {
		if exits.Add(1) == 1 {
			runtime.Goexit()
		}
		return nil
	}, receiver.Options[sqlstore.Tx]{}), nil)
	drained(t, c)
	stop()
	if got := l.effects(t); len(got) != 1 || exits.Load() != 2 {
		t.Errorf("effects %q after %d runs, want one after 2", got, exits.Load())
	}
}

func TestReceiveRefusesSettings(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, nil), newLedger(t)
	r := l.receiver(t, func(receiver.Message) error { return nil }, receiver.Options[sqlstore.Tx]{})
	good := f.consumer(t, jetstream.ConsumerConfig{})
	for says, c := range map[string]jetstream.ConsumerConfig{
		"MaxDeliver 3":      {Durable: "bounded", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3},
		"AckExplicitPolicy": {Durable: "silent", AckPolicy: jetstream.AckNonePolicy},
	} {
		cons, err := f.stream.CreateConsumer(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := natstransport.Receive(t.Context(), cons, r, nil); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
	}
	if err := natstransport.Receive(t.Context(), good, r, &natstransport.ReceiveOptions{Concurrency: -1}); !errors.Is(err, outbox.ErrInvalidArgument) {
		t.Errorf("Concurrency -1: got %v", err)
	}
}

// What a receiver cannot handle yet another one gets: it would wait behind a slow handler,
// and be delivered again after the consumer's AckWait.
func TestReceiveHoldsNothingAhead(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, nil), newLedger(t)
	c := f.consumer(t, jetstream.ConsumerConfig{})
	for i := range 10 {
		f.put(t, strconv.Itoa(i), "")
	}
	busy, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	var first atomic.Bool
	r := l.receiver(t, func(receiver.Message) error {
		if first.CompareAndSwap(false, true) {
			close(busy)
			<-release
		}
		return nil
	}, receiver.Options[sqlstore.Tx]{})
	receive(t, c, r, nil)
	<-busy
	receive(t, c, r, &natstransport.ReceiveOptions{Concurrency: 2})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		info, err := c.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.NumPending == 0 && info.NumAckPending == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d messages are left to the other receiver, %d wait beside the one that is handled", info.NumPending, info.NumAckPending-1)
		}
	}
}

// What the server sends to a receiver that stops goes to others at once.
func TestReceiveGivesBack(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, nil), newLedger(t)
	c := f.consumer(t, jetstream.ConsumerConfig{AckWait: time.Hour})
	r := l.receiver(t, func(receiver.Message) error { return nil }, receiver.Options[sqlstore.Tx]{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- natstransport.Receive(ctx, c, r, nil) }()
	for asked := false; !asked; {
		info, err := c.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		asked = info.NumWaiting > 0
	}
	cancel()
	f.put(t, "m", "")
	if err := <-done; err != nil || len(l.effects(t)) > 0 {
		t.Errorf("Receive returned %v, and handled %d messages after its end", err, len(l.effects(t)))
	}
	receive(t, c, r, nil)
	drained(t, c)
}

// Receive ends when its consumer is gone, also where it finds out after a handler.
func TestReceiveConsumerDeleted(t *testing.T) {
	t.Parallel()
	for _, handling := range []bool{false, true} {
		t.Run(fmt.Sprintf("handling=%v", handling), func(t *testing.T) {
			t.Parallel()
			f, l := newFixture(t, nil), newLedger(t)
			c := f.consumer(t, jetstream.ConsumerConfig{})
			remove := func() {
				if err := f.stream.DeleteConsumer(t.Context(), "ledger"); err != nil {
					t.Error(err)
				}
			}
			r := l.receiver(t, func(receiver.Message) error { remove(); return nil }, receiver.Options[sqlstore.Tx]{})
			var wg sync.WaitGroup
			defer wg.Wait()
			if handling {
				f.publish(t, 1)
			} else {
				wg.Go(func() {
					waits(t, c)
					remove()
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := natstransport.Receive(ctx, c, r, nil); err == nil {
				t.Error("Receive went on until its context had ended")
			}
		})
	}
}

// A server that is away for a while is waited for; a connection that is closed is not.
func TestReceiveThroughAnOutage(t *testing.T) {
	t.Parallel()
	p, l := startProcess(t), newLedger(t)
	f := ownStream(t, p.url(), quickly)
	c := f.consumer(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second})
	r := l.receiver(t, func(receiver.Message) error { return nil }, receiver.Options[sqlstore.Tx]{})
	done := make(chan error, 1)
	go func() { done <- natstransport.Receive(t.Context(), c, r, nil) }()
	f.publish(t, 3)
	drained(t, c)
	subs := f.nc.NumSubscriptions()
	p.kill()
	time.Sleep(5 * time.Second)
	if n := f.nc.NumSubscriptions(); n > subs+2 {
		t.Errorf("%d subscriptions gather while the server is away", n-subs)
	}
	p.start(t)
	waitConnected(t, f.nc)
	f.publish(t, 3)
	drained(t, c)
	if n := len(l.effects(t)); n != 6 {
		t.Errorf("%d effects of 6 messages", n)
	}
	f.nc.Close()
	select {
	case err := <-done:
		if !errors.Is(err, natsgo.ErrConnectionClosed) {
			t.Errorf("Receive returned %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("Receive goes on over a closed connection")
	}
}

// A consumer with a BackOff waits by its steps, the AckWait is the first one's: the
// server hears of a handler often enough for the shortest.
func TestReceiveShorterBackOff(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, nil), newLedger(t)
	c := f.consumer(t, jetstream.ConsumerConfig{BackOff: []time.Duration{30 * time.Second, 5 * time.Second}})
	f.put(t, "one", "")
	r := l.receiver(t, func(m receiver.Message) error {
		if m.Attempt == 1 {
			return errors.New("refused")
		}
		time.Sleep(8 * time.Second)
		return nil
	}, receiver.Options[sqlstore.Tx]{MaxAttempts: -1})
	receive(t, c, r, &natstransport.ReceiveOptions{Concurrency: 4})
	drained(t, c)
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := info.Delivered.Consumer; n != 2 {
		t.Errorf("the message was delivered %d times, want 2", n)
	}
}

// A dead letter that its own consumer would take again is refused, and the message
// stays: with an id it would be acknowledged as a repeat, without one be a dead letter
// again and again.
func TestDeadLettersAreNotTakenAgain(t *testing.T) {
	t.Parallel()
	f, l := newFixture(t, func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }), newLedger(t)
	c, err := f.stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: f.name + ".*"})
	if err != nil {
		t.Fatal(err)
	}
	f.put(t, "one", "1")
	if _, err := f.js.PublishMsg(t.Context(), &natsgo.Msg{Subject: f.name + ".orders", Data: []byte("no event")}); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 100)
	r := l.receiver(t, func(receiver.Message) error { return receiver.Permanent(errors.New("refused")) }, receiver.Options[sqlstore.Tx]{
		Dead: natstransport.DeadSubject[sqlstore.Tx](f.js, f.name+".dead"),
		OnError: func(_ receiver.Message, err error) {
			select {
			case failed <- err:
			default:
			}
		}})
	stop := receive(t, c, r, nil)
	for range 6 {
		if err := <-failed; !strings.Contains(err.Error(), "takes the subject "+f.name+".dead") {
			t.Errorf("got %v", err)
		}
	}
	stop()
	if n := f.count(t); n != 2 {
		t.Errorf("%d messages are in the stream, want the 2 that failed", n)
	}
}
