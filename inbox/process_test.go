package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/inboxtest"
)

func newInbox(t *testing.T, s inbox.Store[*inboxtest.MemTx], opts *inbox.Options) *inbox.Inbox[*inboxtest.MemTx] {
	t.Helper()
	in, err := inbox.New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// handle processes one delivery as the package documentation says.
func handle(ctx context.Context, m *inboxtest.Mem, in *inbox.Inbox[*inboxtest.MemTx], id string, fn func(context.Context) error) (bool, error) {
	tx := m.Begin()
	processed, err := in.Process(ctx, tx, id, "billing", fn)
	if err != nil {
		return false, errors.Join(err, tx.Rollback())
	}
	return processed, tx.Commit()
}

func nothing(context.Context) error { return nil }

func TestProcessOnce(t *testing.T) {
	t.Parallel()
	m := inboxtest.NewMem()
	in := newInbox(t, m, nil)
	ran := 0
	count := func(context.Context) error { ran++; return nil }
	for i, want := range []bool{true, false, false} {
		if got, err := handle(t.Context(), m, in, "m1", count); got != want || err != nil {
			t.Errorf("delivery %d: processed %t, error %v; want %t", i+1, got, err, want)
		}
	}
	if ran != 1 {
		t.Errorf("the handler ran %d times, want 1", ran)
	}
}

func TestProcessFailureFreesTheMessage(t *testing.T) {
	t.Parallel()
	m := inboxtest.NewMem()
	in := newInbox(t, m, nil)
	refused := errors.New("card refused")
	if _, err := handle(t.Context(), m, in, "m1", func(context.Context) error { return refused }); !errors.Is(err, refused) {
		t.Fatalf("error %v, want the handler's", err)
	}
	if got, err := handle(t.Context(), m, in, "m1", nothing); !got || err != nil {
		t.Fatalf("second delivery: processed %t, error %v; want true", got, err)
	}
}

func TestProcessConcurrentDuplicatesOneEffect(t *testing.T) {
	t.Parallel()
	m := inboxtest.NewMem()
	in := newInbox(t, m, nil)
	var effects, processed, tries atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for {
				got, err := handle(t.Context(), m, in, "m1", func(context.Context) error {
					if tries.Add(1) <= 3 {
						return errors.New("not yet")
					}
					effects.Add(1)
					return nil
				})
				if err != nil {
					continue // the broker delivers again
				}
				if got {
					processed.Add(1)
				}
				return
			}
		})
	}
	wg.Wait()
	if effects.Load() != 1 || processed.Load() != 1 {
		t.Errorf("%d effects, %d deliveries processed; want 1 and 1", effects.Load(), processed.Load())
	}
}

func TestRetention(t *testing.T) {
	for _, c := range []struct {
		retention, live, gone time.Duration
	}{
		{0, 7*24*time.Hour - time.Microsecond, 7 * 24 * time.Hour},
		{time.Minute, time.Minute - time.Microsecond, time.Minute},
		{-1, 200 * 365 * 24 * time.Hour, 0},
	} {
		t.Run(fmt.Sprint(c.retention), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := inboxtest.NewMem()
				in := newInbox(t, m, &inbox.Options{Retention: c.retention})
				if got, err := handle(t.Context(), m, in, "m1", nothing); !got || err != nil {
					t.Fatal(got, err)
				}
				time.Sleep(c.live)
				if got, err := handle(t.Context(), m, in, "m1", nothing); got || err != nil {
					t.Fatalf("after %s: processed %t, error %v; want a duplicate", c.live, got, err)
				}
				if c.gone == 0 {
					return
				}
				time.Sleep(c.gone - c.live)
				tx := m.Begin()
				if seen, err := in.HasBeenProcessed(t.Context(), tx, "m1", "billing"); seen || err != nil {
					t.Errorf("after %s: has been processed %t, error %v; want false", c.gone, seen, err)
				}
				tx.Rollback()
				if got, err := handle(t.Context(), m, in, "m1", nothing); !got || err != nil {
					t.Errorf("after %s: processed %t, error %v; want true", c.gone, got, err)
				}
			})
		})
	}
}

func TestMarkAndHasBeenProcessed(t *testing.T) {
	t.Parallel()
	m := inboxtest.NewMem()
	in := newInbox(t, m, nil)
	tx := m.Begin()
	for range 2 {
		if err := in.MarkProcessed(t.Context(), tx, "m1", "billing"); err != nil {
			t.Fatal(err)
		}
	}
	other := m.Begin()
	if seen, err := in.HasBeenProcessed(t.Context(), other, "m1", "billing"); seen || err != nil {
		t.Errorf("before the commit another transaction sees %t, error %v; want false", seen, err)
	}
	tx.Commit()
	if seen, err := in.HasBeenProcessed(t.Context(), other, "m1", "billing"); !seen || err != nil {
		t.Errorf("after the commit it sees %t, error %v; want true", seen, err)
	}
	other.Rollback()
	if got, err := handle(t.Context(), m, in, "m1", nothing); got || err != nil {
		t.Errorf("a marked message was processed %t, error %v; want a duplicate", got, err)
	}
}

// batches wraps a store and notes the size of each purge.
type batches struct {
	*inboxtest.Mem
	sizes []int
	fail  error
}

func (b *batches) Purge(ctx context.Context, now time.Time, limit int) (int, error) {
	if b.fail != nil && len(b.sizes) == 1 {
		return 0, b.fail
	}
	n, err := b.Mem.Purge(ctx, now, limit)
	b.sizes = append(b.sizes, n)
	return n, err
}

func TestPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &batches{Mem: inboxtest.NewMem()}
		in := newInbox(t, m, &inbox.Options{Retention: time.Hour, PurgeBatch: 10})
		fill := func() {
			for i := range 25 {
				if _, err := handle(t.Context(), m.Mem, in, fmt.Sprint(i), nothing); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Hour)
		}
		fill()
		if n, err := in.Purge(t.Context()); n != 25 || err != nil || fmt.Sprint(m.sizes) != "[10 10 5 0]" {
			t.Errorf("purged %d in batches %v, error %v; want 25 in [10 10 5 0]", n, m.sizes, err)
		}
		fill()
		m.sizes, m.fail = nil, errors.New("connection lost")
		if n, err := in.Purge(t.Context()); n != 10 || !errors.Is(err, m.fail) {
			t.Errorf("purged %d, error %v; want the 10 of the first batch and the store's error", n, err)
		}
		m.fail = nil
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n, err := in.Purge(ctx); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("purged %d under an ended context, error %v", n, err)
		}
	})
}

func TestInvalidArguments(t *testing.T) {
	t.Parallel()
	m := inboxtest.NewMem()
	in := newInbox(t, m, nil)
	for name, c := range map[string]struct{ id, consumer, says string }{
		"empty id":       {"", "billing", "message id is empty"},
		"empty consumer": {"m1", "", "consumer is empty"},
		"long id":        {strings.Repeat("x", 256), "billing", "256 bytes, limit 255"},
		"long consumer":  {"m1", strings.Repeat("x", 256), "256 bytes, limit 255"},
		"control byte":   {"m\x001", "billing", "control byte at 1"},
		"newline":        {"m1", "bill\n", "control byte at 4"},
		"utf-8":          {"m\xff", "billing", "not valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			tx := m.Begin()
			defer tx.Rollback()
			ran := false
			_, err := in.Process(t.Context(), tx, c.id, c.consumer, func(context.Context) error { ran = true; return nil })
			if !errors.Is(err, inbox.ErrInvalidArgument) || !strings.Contains(err.Error(), c.says) || ran {
				t.Errorf("Process: error %v, handler ran %t; want an invalid argument that says %q", err, ran, c.says)
			}
			if _, err := in.HasBeenProcessed(t.Context(), tx, c.id, c.consumer); !errors.Is(err, inbox.ErrInvalidArgument) {
				t.Errorf("HasBeenProcessed: %v", err)
			}
			if err := in.MarkProcessed(t.Context(), tx, c.id, c.consumer); !errors.Is(err, inbox.ErrInvalidArgument) {
				t.Errorf("MarkProcessed: %v", err)
			}
		})
	}
	tx := m.Begin()
	if ok, err := in.Process(t.Context(), tx, strings.Repeat("x", 255), strings.Repeat("y", 255), nothing); !ok || err != nil {
		t.Errorf("id and consumer at the limit: %t, %v", ok, err)
	}
	if _, err := in.Process(t.Context(), tx, "m1", "billing", nil); !errors.Is(err, inbox.ErrInvalidArgument) {
		t.Errorf("nil handler: %v", err)
	}
	tx.Rollback()
	if _, err := in.Process(t.Context(), tx, "m1", "billing", nothing); !errors.Is(err, inboxtest.ErrTxDone) || !strings.Contains(err.Error(), `"m1"`) {
		t.Errorf("ended transaction: %v, want the store's error and the message", err)
	}
	for name, o := range map[string]*inbox.Options{
		"Retention 500ms": {Retention: 500 * time.Millisecond}, "PurgeBatch -1": {PurgeBatch: -1}, "PurgeBatch 10001": {PurgeBatch: 10_001},
	} {
		if _, err := inbox.New(m, o); !errors.Is(err, inbox.ErrInvalidArgument) || !strings.Contains(err.Error(), name) {
			t.Errorf("New with %s: %v", name, err)
		}
	}
	if _, err := inbox.New[*inboxtest.MemTx](nil, nil); !errors.Is(err, inbox.ErrInvalidArgument) {
		t.Errorf("New without a store: %v", err)
	}
}

// The longest Retention is one, whatever is added to it.
func TestLongestRetention(t *testing.T) {
	t.Parallel()
	m := inboxtest.NewMem()
	in := newInbox(t, m, &inbox.Options{Retention: math.MaxInt64})
	for _, want := range []bool{true, false} {
		if got, err := handle(t.Context(), m, in, "m1", nothing); got != want || err != nil {
			t.Errorf("processed %t, error %v; want %t", got, err, want)
		}
	}
}
