package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
)

// newUnit returns a unit of work over a new fakeDB, and the counter of
// Committed.
func newUnit(t *testing.T) (*fakeDB, *outbox.UnitOfWork[*fakeTx], *atomic.Int32) {
	t.Helper()
	db, ob := newShop(t, outbox.Options{})
	var commits atomic.Int32
	u, err := outbox.NewUnitOfWork(ob, db, &outbox.UnitOptions{Committed: func() { commits.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	return db, u, &commits
}

// wantHistory compares what the database was asked, in order.
func wantHistory(t *testing.T, db *fakeDB, want ...string) {
	t.Helper()
	if got := db.history(); !slices.Equal(got, want) {
		t.Errorf("the database was asked %q, want %q", got, want)
	}
}

func wantNothing(t *testing.T, db *fakeDB, commits *atomic.Int32) {
	t.Helper()
	if rows := db.rows(); len(rows) != 0 || len(db.business) != 0 {
		t.Errorf("committed: %d messages and %q, want nothing", len(rows), db.business)
	}
	if n := commits.Load(); n != 0 {
		t.Errorf("Committed was called %d times, want 0", n)
	}
}

func TestNewUnitOfWorkRefuses(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{})
	var noDB *fakeDB
	for name, f := range map[string]func() (*outbox.UnitOfWork[*fakeTx], error){
		"nil outbox": func() (*outbox.UnitOfWork[*fakeTx], error) { return outbox.NewUnitOfWork(nil, db, nil) },
		"zero outbox": func() (*outbox.UnitOfWork[*fakeTx], error) {
			return outbox.NewUnitOfWork(&outbox.Outbox[*fakeTx]{}, db, nil)
		},
		"nil beginner":       func() (*outbox.UnitOfWork[*fakeTx], error) { return outbox.NewUnitOfWork(ob, nil, nil) },
		"typed nil beginner": func() (*outbox.UnitOfWork[*fakeTx], error) { return outbox.NewUnitOfWork(ob, noDB, nil) },
	} {
		if u, err := f(); !errors.Is(err, outbox.ErrInvalidArgument) || u != nil {
			t.Errorf("%s: %v, want ErrInvalidArgument", name, err)
		}
	}
	u, err := outbox.NewUnitOfWork(ob, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Do(t.Context(), nil); !errors.Is(err, outbox.ErrInvalidArgument) {
		t.Errorf("nil fn: %v", err)
	}
	if _, err := u.Publish(t.Context(), order(1)); err != nil || len(db.rows()) != 1 {
		t.Errorf("without options: %v, %d rows", err, len(db.rows()))
	}
}

// The messages go last, after every business statement, whatever the order of
// the calls: the positions of a key are then drawn under its lock.
func TestUnitWritesMessagesLast(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	var ids []outbox.ID
	err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		first, err := u.Publish(ctx, order(1), order(2))
		if err != nil {
			return err
		}
		tx.exec("one")
		second, err := u.Publish(ctx, order(3))
		if err != nil {
			return err
		}
		tx.exec("two")
		ids = append(first, second...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantHistory(t, db, "begin", "exec", "exec", "enlist", "commit")
	rows := db.rows()
	if len(rows) != 3 || !slices.Equal(db.business, []string{"one", "two"}) {
		t.Fatalf("%d messages and %q", len(rows), db.business)
	}
	for i, rec := range rows {
		if want := fmt.Sprintf(`{"order":%d}`, i+1); string(rec.Message.Body) != want || rec.ID != ids[i] {
			t.Errorf("row %d: %s %s, want %s %s", i, rec.ID, rec.Message.Body, ids[i], want)
		}
	}
	if n := commits.Load(); n != 1 {
		t.Errorf("Committed was called %d times, want 1", n)
	}
}

func TestUnitWithoutMessages(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		tx.exec("one")
		_, err := u.Publish(ctx)
		return err
	})
	if err != nil || len(db.business) != 1 || commits.Load() != 0 {
		t.Errorf("%v, %q, Committed %d times", err, db.business, commits.Load())
	}
	wantHistory(t, db, "begin", "exec", "commit")
}

func TestUnitRollsBackOnError(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	cause := errors.New("out of stock")
	err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		tx.exec("one")
		if _, err := u.Publish(ctx, order(1)); err != nil {
			return err
		}
		return cause
	})
	if err != cause {
		t.Errorf("got %v, want the error of fn as it is", err)
	}
	wantHistory(t, db, "begin", "exec", "rollback")
	wantNothing(t, db, commits)

	db.rollbackErr = errors.New("connection lost")
	err = u.Do(t.Context(), func(context.Context, *fakeTx) error { return cause })
	if !errors.Is(err, cause) || !errors.Is(err, db.rollbackErr) {
		t.Errorf("got %v, want both errors", err)
	}
}

func TestUnitRollsBackOnPanic(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	var leaked context.Context
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v, want the panic of fn", r)
			}
		}()
		_ = u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
			leaked = ctx
			tx.exec("one")
			if _, err := u.Publish(ctx, order(1)); err != nil {
				t.Error(err)
			}
			panic("boom")
		})
	}()
	wantHistory(t, db, "begin", "exec", "rollback")
	if _, err := u.Publish(leaked, order(2)); !errors.Is(err, outbox.ErrTxDone) {
		t.Errorf("publish after the panic: %v, want ErrTxDone", err)
	}
	wantNothing(t, db, commits)
}

// t.FailNow and others end a goroutine without a panic.
func TestUnitRollsBackOnGoexit(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
			_ = u.Do(ctx, func(context.Context, *fakeTx) error {
				runtime.Goexit()
				return nil
			})
			return nil
		})
	}()
	<-done
	wantHistory(t, db, "begin", "rollback")
	wantNothing(t, db, commits)
}

// The caller gives up; its rollback goes out all the same, but not for ever.
func TestUnitRollbackOutlivesTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, u, commits := newUnit(t)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "kept"))
		db.onRollback = func(ctx context.Context) {
			if err := ctx.Err(); err != nil {
				t.Errorf("rollback under a context that is done: %v", err)
			}
			if ctx.Value(ctxKey{}) != "kept" {
				t.Error("rollback lost the values of the context")
			}
			<-ctx.Done() // a server that does not answer
		}
		start := time.Now()
		err := u.Do(ctx, func(ctx context.Context, tx *fakeTx) error {
			cancel()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("rollback was given up after %v, want 5 s", took)
		}
		wantHistory(t, db, "begin", "rollback")
		wantNothing(t, db, commits)
	})
}

// fn did not look at its context: the unit does, before it commits.
func TestUnitCancelledBeforeCommit(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	cause := errors.New("client went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := u.Do(ctx, func(ctx context.Context, tx *fakeTx) error {
		_, err := u.Publish(ctx, order(1))
		cancel(cause)
		return err
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || !strings.Contains(err.Error(), "rolled back") {
		t.Errorf("got %v, want context.Canceled and its cause", err)
	}
	wantHistory(t, db, "begin", "rollback")
	wantNothing(t, db, commits)
}

func TestUnitBeginFails(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	db.beginErr = errors.New("no connection")
	err := u.Do(t.Context(), func(context.Context, *fakeTx) error { t.Error("fn was called"); return nil })
	if !errors.Is(err, db.beginErr) {
		t.Errorf("got %v", err)
	}
	if _, err := u.Publish(t.Context(), order(1)); !errors.Is(err, db.beginErr) {
		t.Errorf("publish: %v", err)
	}
	wantNothing(t, db, commits)
}

type nilBeginner struct{ *fakeDB }

func (nilBeginner) Begin(context.Context) (*fakeTx, error) { return nil, nil }

func TestUnitBeginnerReturnsNil(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{})
	u, err := outbox.NewUnitOfWork(ob, nilBeginner{db}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = u.Do(t.Context(), func(context.Context, *fakeTx) error { t.Error("fn was called"); return nil })
	if !errors.Is(err, outbox.ErrInvalidArgument) {
		t.Errorf("got %v, want ErrInvalidArgument", err)
	}
}

func TestUnitEnlistFails(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	db.enlistErr = fmt.Errorf("%w: orders", outbox.ErrUnknownRoute)
	err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		tx.exec("one")
		_, err := u.Publish(ctx, order(1))
		return err
	})
	if !errors.Is(err, outbox.ErrUnknownRoute) {
		t.Errorf("got %v, want ErrUnknownRoute", err)
	}
	wantHistory(t, db, "begin", "exec", "enlist", "rollback")
	wantNothing(t, db, commits)
}

// A failed commit is the one error after which the work may stand.
func TestUnitCommitFails(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	db.commitErr = errors.New("connection lost")
	db.rollbackErr = errors.New("no such transaction")
	err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		_, err := u.Publish(ctx, order(1))
		return err
	})
	if !errors.Is(err, db.commitErr) || !strings.Contains(err.Error(), "may have committed") {
		t.Errorf("got %v, want the error and the warning", err)
	}
	if errors.Is(err, db.rollbackErr) {
		t.Errorf("the clean-up after the commit counts: %v", err)
	}
	wantHistory(t, db, "begin", "enlist", "commit", "rollback")
	if n := commits.Load(); n != 0 {
		t.Errorf("Committed was called %d times after a failed commit", n)
	}
}

// A panic in Committed comes after the commit: no rollback follows.
func TestUnitCommittedPanics(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{})
	u, err := outbox.NewUnitOfWork(ob, db, &outbox.UnitOptions{Committed: func() { panic("boom") }})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = u.Publish(t.Context(), order(1))
	}()
	wantHistory(t, db, "begin", "enlist", "commit")
}

func TestNestedDoJoins(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	err := u.Do(t.Context(), func(ctx context.Context, outer *fakeTx) error {
		if _, err := u.Publish(ctx, order(1)); err != nil {
			return err
		}
		return u.Do(ctx, func(ctx context.Context, inner *fakeTx) error {
			if inner != outer {
				t.Error("the nested Do has another transaction")
			}
			inner.exec("inner")
			_, err := u.Publish(ctx, order(2))
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	wantHistory(t, db, "begin", "exec", "enlist", "commit")
	if len(db.rows()) != 2 || commits.Load() != 1 {
		t.Errorf("%d messages, Committed %d times", len(db.rows()), commits.Load())
	}
}

// The outer fn goes on as if nothing had happened: half a unit must not be
// committed.
func TestNestedFailureDoomsTheUnit(t *testing.T) {
	t.Parallel()
	cause := errors.New("payment refused")
	for name, inner := range map[string]func(context.Context, *fakeTx) error{
		"error": func(context.Context, *fakeTx) error { return cause },
		"panic": func(context.Context, *fakeTx) error { panic(cause) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, u, commits := newUnit(t)
			err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
				tx.exec("one")
				func() {
					defer func() { _ = recover() }()
					if err := u.Do(ctx, inner); !errors.Is(err, cause) {
						t.Errorf("the nested Do returned %v", err)
					}
				}()
				_, err := u.Publish(ctx, order(1))
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "rolled back: a nested Do failed") {
				t.Errorf("got %v, want an error that says so", err)
			}
			if name == "error" && !errors.Is(err, cause) {
				t.Errorf("got %v, want the cause", err)
			}
			wantHistory(t, db, "begin", "exec", "rollback")
			wantNothing(t, db, commits)
		})
	}
}

// A goroutine that was not waited for is still inside the unit when the outer
// fn returns: it would write on after the commit.
func TestNestedDoOutlivesTheUnit(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	entered, release, inner := make(chan struct{}), make(chan struct{}), make(chan error)
	err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		go func() {
			inner <- u.Do(ctx, func(context.Context, *fakeTx) error {
				close(entered)
				<-release
				return nil
			})
		}()
		<-entered
		return nil
	})
	close(release)
	if err == nil || !strings.Contains(err.Error(), "had not returned") {
		t.Errorf("the unit returned %v, want an error that says why it was rolled back", err)
	}
	if err := <-inner; !errors.Is(err, outbox.ErrTxDone) {
		t.Errorf("the nested Do returned %v, want ErrTxDone", err)
	}
	wantHistory(t, db, "begin", "rollback")
	wantNothing(t, db, commits)
}

func TestContextOutlivesTheUnit(t *testing.T) {
	t.Parallel()
	db, u, _ := newUnit(t)
	var leaked context.Context
	if err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error { leaked = ctx; return nil }); err != nil {
		t.Fatal(err)
	}
	if ids, err := u.Publish(context.WithoutCancel(leaked), order(1)); !errors.Is(err, outbox.ErrTxDone) || ids != nil {
		t.Errorf("publish: %v, %v, want ErrTxDone", ids, err)
	}
	err := u.Do(leaked, func(context.Context, *fakeTx) error { t.Error("fn was called"); return nil })
	if !errors.Is(err, outbox.ErrTxDone) || !strings.Contains(err.Error(), "context from outside") {
		t.Errorf("do: %v, want ErrTxDone with the remedy", err)
	}
	wantHistory(t, db, "begin", "commit")
}

// The unit may end while a publication is being encoded: then it must not be
// reported as published.
func TestPublishRacesTheEnd(t *testing.T) {
	t.Parallel()
	encoding, release := make(chan struct{}), make(chan struct{})
	codec := outbox.JSON[placed]()
	codec.Encode = func(placed) ([]byte, error) {
		close(encoding)
		<-release
		return []byte("{}"), nil
	}
	ts := outbox.NewTypes()
	if err := outbox.Register(ts, "slow", 1, codec); err != nil {
		t.Fatal(err)
	}
	db, ob := newShop(t, outbox.Options{Types: ts})
	u, err := outbox.NewUnitOfWork(ob, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	err = u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		go func() {
			_, err := u.Publish(ctx, order(1))
			result <- err
		}()
		<-encoding
		return nil
	})
	close(release)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, outbox.ErrTxDone) {
		t.Errorf("publish returned %v, want ErrTxDone", err)
	}
	if n := len(db.rows()); n != 0 {
		t.Errorf("%d messages", n)
	}
}

// Buffered messages are the unit's: the caller reuses its memory at once (E2).
func TestUnitCopiesMemory(t *testing.T) {
	t.Parallel()
	db, u, _ := newUnit(t)
	body, key, value := []byte("body"), []byte("key"), []byte("value")
	headers := []outbox.Header{{Name: "h", Value: value}}
	exts := []outbox.Extension{{Name: "e", Value: "x"}}
	err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		_, err := u.Publish(ctx, outbox.Publication{Value: body, Message: outbox.Message{
			Destination: "d", Key: key, Headers: headers, Event: outbox.Event{Extensions: exts},
		}})
		clear(body)
		clear(key)
		clear(value)
		headers[0].Name, exts[0].Name = "changed", "changed"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m := db.rows()[0].Message
	if string(m.Body) != "body" || string(m.Key) != "key" || m.Headers[0].Name != "h" || string(m.Headers[0].Value) != "value" || m.Event.Extensions[0].Name != "e" {
		t.Errorf("the row holds %+v", m)
	}
}

// A publication that is refused leaves the unit as it was.
func TestUnitSurvivesARefusedPublish(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	bad := order(2)
	bad.Message.Destination = ""
	err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		if _, err := u.Publish(ctx, order(1), bad); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "publication 1 of 2") {
			t.Errorf("got %v, want ErrInvalidArgument with the index, at once", err)
		}
		_, err := u.Publish(ctx, order(3))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := db.rows()
	if len(rows) != 1 || string(rows[0].Message.Body) != `{"order":3}` || commits.Load() != 1 {
		t.Errorf("rows %+v, want the third alone", rows)
	}
}

func TestUnitRefusesADuplicateID(t *testing.T) {
	t.Parallel()
	db, u, _ := newUnit(t)
	first, again := order(1), order(2)
	first.ID = outbox.NewID()
	again.ID = first.ID
	err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		if _, err := u.Publish(ctx, first); err != nil {
			return err
		}
		if _, err := u.Publish(ctx, order(3), again); !errors.Is(err, outbox.ErrDuplicateID) || !strings.Contains(err.Error(), "publication 1 of 2") {
			t.Errorf("got %v, want ErrDuplicateID with the index", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if rows := db.rows(); len(rows) != 1 || rows[0].ID != first.ID {
		t.Errorf("rows %+v, want the first alone", rows)
	}
}

func TestUnitsDoNotMix(t *testing.T) {
	t.Parallel()
	dbA, a, _ := newUnit(t)
	dbB, b, _ := newUnit(t)
	cause := errors.New("a fails")
	err := a.Do(t.Context(), func(ctx context.Context, txA *fakeTx) error {
		if err := b.Do(ctx, func(ctx context.Context, txB *fakeTx) error {
			if txA.db != dbA || txB.db != dbB {
				t.Error("the transactions are mixed up")
			}
			_, errA := a.Publish(ctx, order(1))
			_, errB := b.Publish(ctx, order(2))
			return errors.Join(errA, errB)
		}); err != nil {
			return err
		}
		return cause
	})
	if err != cause {
		t.Fatal(err)
	}
	if rows := dbB.rows(); len(rows) != 1 || string(rows[0].Message.Body) != `{"order":2}` {
		t.Errorf("b wrote %+v, want its own message", rows)
	}
	if rows := dbA.rows(); len(rows) != 0 {
		t.Errorf("a wrote %+v after its rollback", rows)
	}
	wantHistory(t, dbA, "begin", "rollback")
	wantHistory(t, dbB, "begin", "enlist", "commit")
}

// With no unit there is a transaction of the outbox's own, begun only when
// everything is known to be good.
func TestPublishWithoutAUnit(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	ids, err := u.Publish(t.Context(), order(1), order(2))
	if err != nil {
		t.Fatal(err)
	}
	rows := db.rows()
	if len(rows) != 2 || len(ids) != 2 || rows[0].ID != ids[0] || rows[1].ID != ids[1] || commits.Load() != 1 {
		t.Errorf("ids %v, rows %+v, Committed %d times", ids, rows, commits.Load())
	}
	bad := order(3)
	bad.Value = panicker{"boom"}
	if _, err := u.Publish(t.Context(), bad); err == nil {
		t.Error("a codec that panics was accepted")
	}
	if ids, err := u.Publish(t.Context()); ids != nil || err != nil {
		t.Errorf("nothing: %v, %v", ids, err)
	}
	wantHistory(t, db, "begin", "enlist", "commit")

	db.commitErr = errors.New("connection lost")
	if ids, err := u.Publish(t.Context(), order(4)); !errors.Is(err, db.commitErr) || ids != nil || !strings.Contains(err.Error(), "may have committed") {
		t.Errorf("failed commit: %v, %v", ids, err)
	}
}

func TestUnitPublishIsConcurrent(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 50
	db, u, _ := newUnit(t)
	err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range each {
					if i%10 == 0 {
						if err := u.Do(ctx, func(context.Context, *fakeTx) error { return nil }); err != nil {
							t.Error(err)
						}
					}
					p := order(i)
					p.TenantID = fmt.Sprint(g)
					if _, err := u.Publish(ctx, p); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := db.rows()
	if len(rows) != goroutines*each {
		t.Fatalf("%d messages, want %d", len(rows), goroutines*each)
	}
	next := map[string]int{}
	for _, rec := range rows {
		if want := fmt.Sprintf(`{"order":%d}`, next[rec.TenantID]); string(rec.Message.Body) != want {
			t.Fatalf("goroutine %s: %s, want %s: its order is lost", rec.TenantID, rec.Message.Body, want)
		}
		next[rec.TenantID]++
	}
	wantHistory(t, db, "begin", "enlist", "commit")
}

// Units of one UnitOfWork run side by side without knowing of each other.
func TestUnitsRunConcurrently(t *testing.T) {
	t.Parallel()
	db, u, commits := newUnit(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			err := u.Do(t.Context(), func(ctx context.Context, tx *fakeTx) error {
				if _, err := u.Publish(ctx, order(i)); err != nil {
					return err
				}
				if i%2 == 1 {
					return errors.New("odd")
				}
				return nil
			})
			if (err != nil) != (i%2 == 1) {
				t.Errorf("unit %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := len(db.rows()); n != 10 || commits.Load() != 10 {
		t.Errorf("%d messages, Committed %d times, want 10", n, commits.Load())
	}
}
