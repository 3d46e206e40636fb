package natstransport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport/receiver"
)

// ReceiveOptions configure [Receive]. nil and the zero value are usable.
type ReceiveOptions struct {
	// Concurrency is how many messages are handled at once, 1 to 1024. More than
	// one gives up their order. Defaults to 1.
	Concurrency int
}

// ReasonHeader is the header of a dead letter that says why it is one.
const ReasonHeader = "Postrider-Dead-Reason"

// Receive hands the messages of a JetStream consumer to r until ctx ends. A message
// is acknowledged when its effect is committed, or was before; one that failed is
// delivered again after the receiver's backoff, and becomes a dead letter as the
// receiver's options say. While a handler runs, the server is told so, and does not
// deliver its message to anybody else.
//
// It asks for no more messages than it can handle at once, so that none waits behind a
// slow handler: others get it. That costs a round trip to the server for a message,
// which more Concurrency hides.
//
// When ctx ends it takes no more messages, lets those that are being handled end
// (receiver.Options.Timeout bounds that), gives back what still comes within a second
// or two, and returns nil. It returns an error when the consumer is deleted or the
// connection is closed; a connection that is lost for a while is waited for.
//
// The consumer needs explicit acknowledgement and no MaxDeliver: JetStream drops
// what was delivered so often without a word, and the receiver could not keep it. To
// keep the order of messages that fail give it MaxAckPending 1. Errors of such
// settings are outbox.ErrInvalidArgument, before anything is received.
func Receive[Tx any](ctx context.Context, c jetstream.Consumer, r *receiver.Receiver[Tx], opts *ReceiveOptions) error {
	o := ReceiveOptions{Concurrency: 1}
	if opts != nil && opts.Concurrency != 0 {
		o = *opts
	}
	if c == nil || r == nil {
		return invalid("the consumer or the receiver is nil")
	}
	if o.Concurrency < 1 || o.Concurrency > 1024 {
		return invalid("Concurrency %d: use 1 to 1024", o.Concurrency)
	}
	name, cfg := c.CachedInfo().Name, c.CachedInfo().Config
	switch {
	case cfg.AckPolicy != jetstream.AckExplicitPolicy:
		return invalid("consumer %s acknowledges by %s: give it AckExplicitPolicy", name, cfg.AckPolicy)
	case cfg.MaxDeliver > 0:
		return invalid("consumer %s has MaxDeliver %d: remove it, the receiver's MaxAttempts bounds deliveries and keeps what fails", name, cfg.MaxDeliver)
	}
	patience := cfg.AckWait // of the server with one delivery
	for _, step := range cfg.BackOff {
		patience = min(patience, step)
	}
	slots := make(chan struct{}, o.Concurrency)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		n, err := takeSlots(ctx, slots, cfg.MaxRequestBatch), error(nil)
		if n > 0 {
			err = pull(ctx, c, n, cfg.MaxRequestExpires, func(msg jetstream.Msg) {
				n--
				wg.Go(func() {
					defer func() { <-slots }()
					one(context.WithoutCancel(ctx), msg, r, patience)
				})
			})
		}
		for range n {
			<-slots
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive from consumer %s: %w", name, err)
		}
	}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outbox.ErrInvalidArgument}, args...)...)
}

// takeSlots waits for a free slot and takes all that are free, most at most if that is
// positive; none when ctx has ended.
func takeSlots(ctx context.Context, slots chan<- struct{}, most int) (n int) {
	if most <= 0 {
		most = cap(slots)
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n = 1; n < most; n++ {
		select {
		case slots <- struct{}{}:
		default:
			return n
		}
	}
	return n
}

const (
	pullFor   = time.Second // a request is open for so long; a stop waits for its end
	pullPause = 250 * time.Millisecond
)

// pull asks for n messages, no more than can be handled now: one that waited here
// would be delivered again after the consumer's AckWait, and nobody else could handle
// it. An error that passes is waited out.
func pull(ctx context.Context, c jetstream.Consumer, n int, longest time.Duration, take func(jetstream.Msg)) error {
	wait := pullFor
	if longest > 0 {
		wait = min(wait, longest)
	}
	// Not under ctx: what the server sends before it knows of the end would be
	// missed, and delivered again after AckWait only.
	batch, err := c.Fetch(n, jetstream.FetchMaxWait(wait))
	if err == nil {
		for msg := range batch.Messages() {
			if ctx.Err() != nil {
				_ = msg.Nak()
				continue
			}
			take(msg)
		}
		err = batch.Error()
	}
	// Asking for the consumer tells one that was deleted from one without a leader, and
	// leaves nothing behind while the connection is down: a Fetch keeps its subscription.
	for err != nil && ctx.Err() == nil {
		switch {
		case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, jetstream.ErrBadRequest), errors.Is(err, jetstream.ErrConsumerDeleted),
			errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pullPause):
		}
		ask, cancel := context.WithTimeout(ctx, lookup)
		_, err = c.Info(ask)
		cancel()
	}
	return nil
}

// one handles a message. Answers to the server that get lost cost a delivery more.
func one[Tx any](ctx context.Context, msg jetstream.Msg, r *receiver.Receiver[Tx], patience time.Duration) {
	m := receiver.Message{Body: msg.Data(), Native: msg}
	var err error
	m.Incoming, err = Parse(msg.Headers())
	if meta, e := msg.Metadata(); e == nil {
		m.Attempt, m.Stored = int(meta.NumDelivered), meta.Timestamp
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(max(patience/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = msg.InProgress()
			case <-done:
				return
			}
		}
	})
	end := sync.OnceFunc(func() {
		close(done)
		wg.Wait() // nothing after the answer
	})
	defer end() // also where a handler ends its goroutine: the message would be held for ever
	v := r.Handle(ctx, m, err)
	end()
	if v.Ack {
		_ = msg.Ack()
	} else {
		_ = msg.NakWithDelay(v.Delay)
	}
}

// DeadSubject is a receiver.Options.Dead that publishes what cannot be handled to a
// subject, which a stream must take: the message as it came, with [ReasonHeader] and
// without the server's own headers, which start with Nats-. It waits for the stream's
// acknowledgement, and may publish a message twice where the receiver's commit fails
// afterwards. The reason is left out where the server's limit has no room for it.
//
// The consumer must not take the subject itself, which is an error: a dead letter that
// came back would be a repeat, and acknowledged, or without an id be one again and again.
// So it is asked for with each dead letter, as Receive does.
func DeadSubject[Tx any](js jetstream.JetStream, subject string) func(context.Context, Tx, receiver.Message, error) error {
	return func(ctx context.Context, _ Tx, m receiver.Message, reason error) error {
		msg, ok := m.Native.(jetstream.Msg)
		if !ok {
			return fmt.Errorf("the message is a %T, no jetstream.Msg", m.Native)
		}
		if err := comesBack(ctx, js, msg, subject); err != nil {
			return err
		}
		dead := &nats.Msg{Subject: subject, Data: msg.Data(), Header: nats.Header{}}
		// Without what was asked of the server: another stream is not the expected
		// one, and one that takes both might have seen the id.
		for name, values := range msg.Headers() {
			if !strings.HasPrefix(strings.ToLower(name), "nats-") {
				dead.Header[name] = values
			}
		}
		dead.Header.Set(ReasonHeader, headerText(reason))
		_, err := js.PublishMsg(ctx, dead)
		if errors.Is(err, nats.ErrMaxPayload) { // it was not with what it came with
			dead.Header.Del(ReasonHeader)
			_, err = js.PublishMsg(ctx, dead)
		}
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			return fmt.Errorf("no stream takes the subject %s of dead letters: create one: %w", subject, err)
		}
		return err
	}
}

// comesBack tells whether the consumer of msg takes a subject too. What cannot be found
// out, such as without the right to ask, is no reason to keep no dead letter.
func comesBack(ctx context.Context, js jetstream.JetStream, msg jetstream.Msg, subject string) error {
	meta, err := msg.Metadata()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	c, err := js.Consumer(ctx, meta.Stream, meta.Consumer)
	if err != nil {
		return nil
	}
	cfg := c.CachedInfo().Config
	filters := cfg.FilterSubjects
	if cfg.FilterSubject != "" {
		filters = append(filters, cfg.FilterSubject)
	}
	if len(filters) > 0 && !slices.ContainsFunc(filters, func(f string) bool { return takes(f, subject) }) {
		return nil
	}
	if stream, err := js.StreamNameBySubject(ctx, subject); err != nil || stream != meta.Stream {
		return nil
	}
	return fmt.Errorf("consumer %s of stream %s takes the subject %s of its own dead letters: give it a FilterSubject without that, or them another subject", meta.Consumer, meta.Stream, subject)
}

// takes tells whether a filter, which may have wildcards, has a subject.
func takes(filter, subject string) bool {
	for {
		f, fs, more := strings.Cut(filter, ".")
		s, ss, deeper := strings.Cut(subject, ".")
		switch {
		case f == ">":
			return true
		case f != "*" && f != s || more != deeper:
			return false
		case !more:
			return true
		}
		filter, subject = fs, ss
	}
}

// headerText is an error as the value of a header.
func headerText(err error) string {
	text := []byte(outbox.CleanReason(err.Error()))
	for i, c := range text {
		if c < 0x20 || c == 0x7f {
			text[i] = ' '
		}
	}
	return string(text)
}
