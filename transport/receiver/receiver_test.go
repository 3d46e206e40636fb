package receiver_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/receiver"
)

type tx = *inboxtest.MemTx

// beginner begins transactions of a store in memory.
type beginner struct {
	*inboxtest.Mem
	refuse error // of the next commits
	spoilt error // of the next commit
	down   error // of the next begin
}

func (b *beginner) Begin(ctx context.Context) (tx, error) {
	if err := b.down; err != nil {
		b.down = nil
		return nil, err
	}
	return b.Mem.Begin(), ctx.Err()
}

func (b *beginner) Commit(_ context.Context, t tx) error {
	if b.refuse != nil {
		return b.refuse
	}
	if err := b.spoilt; err != nil {
		b.spoilt = nil
		return err
	}
	return t.Commit()
}

func (b *beginner) Rollback(_ context.Context, t tx) error {
	if err := t.Rollback(); !errors.Is(err, inboxtest.ErrTxDone) {
		return err
	}
	return nil
}

func newReceiver(t *testing.T, b *beginner, handle receiver.Handler[tx], opts receiver.Options[tx]) *receiver.Receiver[tx] {
	t.Helper()
	in, err := inbox.New[tx](b.Mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts.Consumer = "billing"
	r, err := receiver.New(in, b, handle, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func message(id string, attempt int) receiver.Message {
	return receiver.Message{Incoming: transport.Incoming{ID: id, Type: "t.v1"}, Attempt: attempt}
}

func TestHandleOnce(t *testing.T) {
	t.Parallel()
	ran := 0
	r := newReceiver(t, &beginner{Mem: inboxtest.NewMem()}, func(context.Context, tx, receiver.Message) error { ran++; return nil }, receiver.Options[tx]{})
	for range 3 {
		if v := r.Handle(t.Context(), message("m", 1), nil); !v.Ack || v.Err != nil {
			t.Errorf("got %+v, want an acknowledgement", v)
		}
	}
	if ran != 1 {
		t.Errorf("the handler ran %d times", ran)
	}
}

// A handler that fails is run again, for ever without dead letters.
func TestFailuresAreDeliveredAgain(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var told []error
	b := &beginner{Mem: inboxtest.NewMem()}
	fail := true
	r := newReceiver(t, b, func(_ context.Context, _ tx, m receiver.Message) error {
		switch {
		case m.ID == "panic" && fail:
			panic("at the handler")
		case fail:
			return receiver.Permanent(broken)
		}
		return nil
	}, receiver.Options[tx]{OnError: func(_ receiver.Message, err error) { told = append(told, err) }, BackoffMin: time.Second, BackoffMax: 4 * time.Second})
	for attempt := 1; attempt < 20; attempt++ {
		v := r.Handle(t.Context(), message("m", attempt), nil)
		if v.Ack || !errors.Is(v.Err, broken) || v.Delay <= 0 || v.Delay > min(time.Second<<(attempt-1), 4*time.Second) {
			t.Errorf("attempt %d: got %+v", attempt, v)
		}
	}
	if v := r.Handle(t.Context(), message("panic", 1), nil); v.Ack || !strings.Contains(v.Err.Error(), "at the handler") {
		t.Errorf("a panic: got %+v", v)
	}
	if len(told) != 20 {
		t.Errorf("OnError was called %d times, want 20", len(told))
	}
	fail = false
	b.refuse = errors.New("connection lost")
	if v := r.Handle(t.Context(), message("m", 20), nil); v.Ack || !errors.Is(v.Err, b.refuse) {
		t.Errorf("a commit that failed: got %+v", v)
	}
	b.refuse = nil
	for _, id := range []string{"m", "panic"} {
		if v := r.Handle(t.Context(), message(id, 21), nil); !v.Ack || v.Err != nil {
			t.Errorf("mended %s: got %+v", id, v)
		}
	}
}

// What cannot be handled is kept once, and acknowledged when it is.
func TestPoisonBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var dead []string
	full := errors.New("disk full")
	var refuse error
	r := newReceiver(t, &beginner{Mem: inboxtest.NewMem()}, func(_ context.Context, _ tx, m receiver.Message) error {
		if m.ID == "bad" {
			return receiver.Permanent(broken)
		}
		return broken
	}, receiver.Options[tx]{MaxAttempts: 3, Dead: func(_ context.Context, _ tx, m receiver.Message, reason error) error {
		if refuse == nil {
			dead = append(dead, m.ID+": "+reason.Error())
		}
		return refuse
	}})
	want := func(m receiver.Message, parsed error, ack bool) {
		t.Helper()
		if v := r.Handle(t.Context(), m, parsed); v.Ack != ack {
			t.Errorf("%q, attempt %d: got %+v, want ack %t", m.ID, m.Attempt, v, ack)
		}
	}
	want(message("m", 1), nil, false)
	want(message("m", 2), nil, false)
	want(message("m", 0), nil, false) // the broker does not count
	refuse = full
	want(message("m", 3), nil, false)
	refuse = nil
	want(message("m", 4), nil, true)
	want(message("m", 5), nil, true) // a repeat
	want(message("bad", 1), nil, true)
	want(message("", 1), errors.New("no id"), true)
	want(message("a\nb", 0), nil, true) // no broker can mend it
	want(message("named", 1), errors.New("bad time"), true)
	want(message("named", 2), errors.New("bad time"), true)
	if !slices.Equal(dead, []string{"m: broken", "bad: broken", ": no id", `a
b: invalid argument: message id "a\nb" has a control byte at 1: remove it`, "named: bad time"}) {
		t.Errorf("dead letters: got %q", dead)
	}
}

// A message that another consumer has under a claim is no poison.
func TestClaimedMessageWaits(t *testing.T) {
	t.Parallel()
	b := &beginner{Mem: inboxtest.NewMem()}
	in, err := inbox.New[tx](b.Mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := in.Claim(t.Context(), "m", "billing", time.Minute); err != nil {
		t.Fatal(err)
	}
	r := newReceiver(t, b, func(context.Context, tx, receiver.Message) error { return nil }, receiver.Options[tx]{
		MaxAttempts: 1, Dead: func(context.Context, tx, receiver.Message, error) error {
			t.Error("it became a dead letter")
			return nil
		}})
	if v := r.Handle(t.Context(), message("m", 9), nil); v.Ack || !errors.Is(v.Err, inbox.ErrInProgress) {
		t.Errorf("got %+v", v)
	}
}

// A database that is away is no fault of the message, however often it came meanwhile:
// neither where no transaction begins, nor where none commits. What counts is how often
// its handler fails, which the broker does not tell from that.
func TestOutageMakesNoDeadLetter(t *testing.T) {
	t.Parallel()
	b := &beginner{Mem: inboxtest.NewMem()}
	var broken error
	var dead []string
	inHandler := func() {}
	r := newReceiver(t, b, func(context.Context, tx, receiver.Message) error { inHandler(); return broken }, receiver.Options[tx]{
		MaxAttempts: 3, Dead: func(_ context.Context, _ tx, m receiver.Message, _ error) error {
			dead = append(dead, m.ID)
			return nil
		}})
	attempt := 0
	fails := func(id string, times int) {
		t.Helper()
		for range times {
			attempt++
			if v := r.Handle(t.Context(), message(id, attempt), nil); v.Ack || v.Err == nil || len(dead) > 0 {
				t.Fatalf("%s, delivery %d: got %+v, and %q are dead", id, attempt, v, dead)
			}
		}
	}
	lost := errors.New("connection refused")
	for range 5 {
		b.down = lost
		fails("m", 1)
		inHandler = func() { b.spoilt, b.down = lost, lost }
		fails("m", 1)
		inHandler = func() {}
	}
	broken = errors.New("broken")
	fails("m", 2)
	fails("other", 2)
	if v := r.Handle(t.Context(), message("m", attempt+1), nil); !v.Ack || !errors.Is(v.Err, broken) || !slices.Equal(dead, []string{"m"}) {
		t.Errorf("the third failure of the handler: got %+v, and %q are dead", v, dead)
	}
	broken = nil
	if v := r.Handle(t.Context(), message("other", attempt+1), nil); !v.Ack || v.Err != nil {
		t.Errorf("a handler that is mended: got %+v", v)
	}
}

// A commit that is refused while the database takes others is a failure of what is in
// it, as by a deferred constraint.
func TestRefusedCommitBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	b := &beginner{Mem: inboxtest.NewMem()}
	r := newReceiver(t, b, func(context.Context, tx, receiver.Message) error {
		b.spoilt = errors.New("violates a constraint")
		return nil
	}, receiver.Options[tx]{MaxAttempts: 3, Dead: func(context.Context, tx, receiver.Message, error) error { return nil }})
	for attempt := 1; attempt <= 3; attempt++ {
		if v := r.Handle(t.Context(), message("m", attempt), nil); v.Ack != (attempt == 3) {
			t.Errorf("attempt %d: got %+v", attempt, v)
		}
	}
}

// Failures in other processes count too, by the broker's word, unless an outage may be
// among them: one that this receiver has met, or one from before its time.
func TestFailuresOfOthersCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &beginner{Mem: inboxtest.NewMem()}
		r := newReceiver(t, b, func(context.Context, tx, receiver.Message) error { return errors.New("broken") }, receiver.Options[tx]{
			MaxAttempts: 3, Dead: func(context.Context, tx, receiver.Message, error) error { return nil }})
		began := time.Now()
		handle := func(id string, attempt int, stored time.Time, ack bool) {
			t.Helper()
			m := message(id, attempt)
			m.Stored = stored
			if v := r.Handle(t.Context(), m, nil); v.Ack != ack {
				t.Errorf("%s, attempt %d: got %+v, want ack %t", id, attempt, v, ack)
			}
		}
		time.Sleep(time.Minute)
		handle("new", 3, time.Now(), true)
		handle("older", 3, began.Add(-time.Second), false)
		stored := time.Now()
		time.Sleep(time.Minute)
		b.down = errors.New("connection refused")
		handle("away", 1, stored, false)
		handle("met", 3, stored, false)
		time.Sleep(time.Minute)
		handle("after", 3, time.Now(), true)
		// A dead letter that comes back begins anew.
		handle("met", 4, stored, false)
		handle("met", 1, stored, false)
	})
}

// Thousands of other messages that fail between two failures of one do not hide the
// first.
func TestFailuresAmongManyCount(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, &beginner{Mem: inboxtest.NewMem()}, func(context.Context, tx, receiver.Message) error { return errors.New("broken") }, receiver.Options[tx]{
		MaxAttempts: 2, Dead: func(context.Context, tx, receiver.Message, error) error { return nil }})
	r.Handle(t.Context(), message("m", 1), nil)
	for i := range 9_999 {
		r.Handle(t.Context(), message(fmt.Sprint(i), 1), nil)
	}
	for _, id := range []string{"m", "0", "9998"} {
		if v := r.Handle(t.Context(), message(id, 2), nil); !v.Ack {
			t.Errorf("%s: got %+v", id, v)
		}
	}
}

// A wait without a practical bound does not overflow.
func TestLongBackoff(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	r := newReceiver(t, &beginner{Mem: inboxtest.NewMem()}, func(context.Context, tx, receiver.Message) error { return broken }, receiver.Options[tx]{BackoffMax: math.MaxInt64})
	if v := r.Handle(t.Context(), message("m", 1000), nil); v.Delay <= 0 {
		t.Errorf("got %+v", v)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, &beginner{Mem: inboxtest.NewMem()}, func(ctx context.Context, _ tx, _ receiver.Message) error {
			<-ctx.Done()
			return ctx.Err()
		}, receiver.Options[tx]{Timeout: time.Second})
		began := time.Now()
		if v := r.Handle(t.Context(), message("m", 1), nil); v.Ack || !errors.Is(v.Err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("got %+v after %v", v, time.Since(began))
		}
	})
}

// A handler that never ends becomes a dead letter too, though its time is over.
func TestTimeoutBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, &beginner{Mem: inboxtest.NewMem()}, func(ctx context.Context, _ tx, _ receiver.Message) error {
			<-ctx.Done()
			return ctx.Err()
		}, receiver.Options[tx]{Timeout: time.Second, MaxAttempts: 2, Dead: func(ctx context.Context, _ tx, _ receiver.Message, reason error) error {
			if !errors.Is(reason, context.DeadlineExceeded) {
				t.Errorf("the reason is %v", reason)
			}
			return ctx.Err()
		}})
		for attempt, ack := range []bool{false, true} {
			if v := r.Handle(t.Context(), message("m", attempt+1), nil); v.Ack != ack {
				t.Errorf("attempt %d: got %+v, want ack %t", attempt+1, v, ack)
			}
		}
	})
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	b := &beginner{Mem: inboxtest.NewMem()}
	in, err := inbox.New[tx](b.Mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	handle := func(context.Context, tx, receiver.Message) error { return nil }
	for says, o := range map[string]receiver.Options[tx]{
		"Consumer":    {},
		"control":     {Consumer: "bill\ning"},
		"MaxAttempts": {Consumer: "c", MaxAttempts: -2},
		"backoff":     {Consumer: "c", BackoffMin: time.Minute, BackoffMax: time.Second},
		"Timeout":     {Consumer: "c", Timeout: -1},
	} {
		if _, err := receiver.New(in, b, handle, &o); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: got %v, want ErrInvalidArgument that names %s", o, err, says)
		}
	}
	if _, err := receiver.New(in, b, nil, &receiver.Options[tx]{Consumer: "c"}); !errors.Is(err, outbox.ErrInvalidArgument) {
		t.Errorf("no handler: got %v", err)
	}
}
