package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
)

const (
	// settlePatience is how long nothing may move, once production is over,
	// before the run is judged as it stands. It is long: a machine may be busy.
	settlePatience = time.Minute
	// crashPatience is how long production goes on beyond Options.Orders for
	// the sake of the kills.
	crashPatience = 3 * time.Minute
	// stopPatience bounds a clean end of the relays, and each step of tidying.
	stopPatience = 30 * time.Second
)

// InterruptedError is returned when ctx ended the run. Everything was tidied
// up.
type InterruptedError struct{ cause error }

func (e *InterruptedError) Error() string {
	return "the demo was interrupted before its end; it has tidied up"
}
func (e *InterruptedError) Unwrap() error { return e.cause }

// ExitCode is the exit status of the program, as shells number a Ctrl-C.
func (e *InterruptedError) ExitCode() int { return 130 }

// demo is one run.
type demo struct {
	opts     Options
	dir      string
	keep     bool     // what was made stays; set when all is made
	log      *os.File // what the relays have to say
	broker   *broker
	shop     *shop
	consumer *consumer
	fleet    fleet

	undo []func(context.Context) error // in the order of the making

	backlog atomic.Int64 // undelivered messages, sampled; with Crash only
	killed  atomic.Int64 // kills that counted, for production and progress
}

// Run runs a demo and prints its verdict. It returns a [*UsageError] when a
// flag cannot work, an [*InterruptedError] when ctx ended it, a
// [*VerdictError] when the verdict is bad, and any other error when it could
// not be run to its end. It leaves no process, and no data unless
// Options.Keep is set.
func Run(ctx context.Context, opts Options) (err error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return err
	}
	d := &demo{opts: opts}
	defer func() {
		// ctx may be done: tidying up gets a time of its own.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		for _, f := range slices.Backward(d.undo) {
			err = errors.Join(err, f(ctx))
		}
	}()
	if err := d.open(ctx); err != nil {
		return interrupted(ctx, err)
	}
	d.keep = opts.Keep != ""
	defer d.tellKept()
	d.introduce()
	v, err := d.run(ctx)
	if err != nil {
		d.tellLog()
		return interrupted(ctx, err)
	}
	if err := d.print(v); err != nil {
		return err
	}
	if fs := v.Failures(); len(fs) > 0 {
		d.tellLog()
		return &VerdictError{fs}
	}
	return nil
}

// interrupted makes err of a run that ctx ended an [*InterruptedError].
func interrupted(ctx context.Context, err error) error {
	var bad *UsageError
	if ctx.Err() == nil || errors.As(err, &bad) && !errors.Is(err, context.Canceled) {
		return err
	}
	return &InterruptedError{err}
}

// onEnd registers what undoes a step.
func (d *demo) onEnd(f func(context.Context) error) { d.undo = append(d.undo, f) }

// open makes everything the run needs. What the user named is checked before
// anything is made.
func (d *demo) open(ctx context.Context) error {
	if err := checkKeep(d.opts.Keep); err != nil {
		return err
	}
	run := strings.ToLower(rand.Text()[:10])
	shopEngine := engine{URL: d.opts.DB, Schema: "postrider_demo_" + run}
	if d.opts.DB != "" {
		db, err := app.ParseDatabase(d.opts.DB)
		if err != nil {
			return usage("--db: %w", err)
		}
		shopEngine.Kind = db.Engine
	}
	booksEngine := shopEngine
	booksEngine.Schema += "_books"
	if d.opts.DB != "" {
		drop, err := createSchemas(ctx, shopEngine, shopEngine.Schema, booksEngine.Schema)
		if err != nil {
			return err
		}
		d.onEnd(func(ctx context.Context) error { return drop(ctx, d.keep) })
	}
	if d.opts.NATS != "" {
		if err := d.openBroker(ctx, run); err != nil {
			return err
		}
	}
	dir, remove, err := makeDir(d.opts.Keep)
	if err != nil {
		return err
	}
	d.dir = dir
	d.onEnd(func(context.Context) error {
		if d.keep {
			return nil
		}
		return remove()
	})
	if d.opts.NATS == "" {
		if err := d.openBroker(ctx, run); err != nil {
			return err
		}
	}
	if d.opts.DB == "" {
		shopEngine = sqliteFile(filepath.Join(dir, "shop.db"))
		booksEngine = sqliteFile(filepath.Join(dir, "books.db"))
	}

	// Append mode keeps the lines of several processes whole.
	d.log, err = os.OpenFile(filepath.Join(dir, "relays.log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("make the relays' log: %w", err)
	}
	d.onEnd(func(context.Context) error { return d.log.Close() })
	if d.shop, err = openShop(ctx, shopEngine, d.opts, d.broker.subject); err != nil {
		return err
	}
	d.onEnd(func(context.Context) error { d.shop.close(); return nil })
	if d.consumer, err = openConsumer(ctx, booksEngine, d.broker); err != nil {
		return err
	}
	d.shop.arrived = d.consumer.applied.Load
	d.onEnd(func(context.Context) error { d.consumer.close(); return nil })
	return nil
}

func (d *demo) openBroker(ctx context.Context, run string) (err error) {
	if d.broker, err = openBroker(ctx, d.opts.NATS, d.dir, run); err != nil {
		return err
	}
	d.onEnd(func(ctx context.Context) (err error) {
		if !d.keep {
			err = d.broker.remove(ctx)
		}
		d.broker.close()
		return err
	})
	return nil
}

// run places the orders, waits until they have arrived, and judges.
func (d *demo) run(ctx context.Context) (v Verdict, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		// What failed first says more than what was cancelled because of it.
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	var wg sync.WaitGroup
	defer wg.Wait()

	show := d.showProgress(ctx)
	defer show()

	consuming, stopConsuming := context.WithCancel(ctx)
	defer stopConsuming()
	wg.Go(func() {
		if err := d.consumer.run(consuming); err != nil {
			cancel(err)
		}
	})

	if err := d.startFleet(ctx); err != nil {
		return v, err
	}
	stopped := false
	stopFleet := func() error {
		if stopped {
			return nil
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		return d.fleet.stop(ctx)
	}
	defer func() { err = errors.Join(err, stopFleet()) }()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	wg.Go(func() {
		select {
		case err := <-d.fleet.failed():
			cancel(err)
		case <-watching.Done():
		}
	})

	if err := d.produce(ctx, cancel); err != nil {
		return v, err
	}
	if err := d.settle(ctx); err != nil {
		return v, err
	}
	stopWatching()
	if err := stopFleet(); err != nil {
		return v, err
	}
	stopConsuming()
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return v, err
	}

	var r Recorded
	for _, record := range []func(context.Context, *Recorded) error{d.shop.record, d.broker.record, d.consumer.record} {
		if err := record(ctx, &r); err != nil {
			return v, err
		}
	}
	return Judge(r), nil
}

func (d *demo) startFleet(ctx context.Context) error {
	var specs []relaySpec
	for i := range d.opts.Relays {
		specs = append(specs, relaySpec{Number: i + 1, Shop: d.shop.engine, NATS: d.broker.url, Stream: d.broker.name})
	}
	if d.opts.Crash {
		c, err := startChildren(specs, d.opts.RelayCommand, d.log)
		if err != nil {
			return err
		}
		d.fleet = c
		if d.shop.db.PGX != nil {
			d.shop.wake = d.notify()
		}
		return nil
	}
	l, err := startLocal(ctx, specs, d.log)
	if err != nil {
		return err
	}
	d.fleet, d.shop.wake = l, l.wake
	return nil
}

// notify starts what tells the relays of other processes of commits.
func (d *demo) notify() (committed func()) {
	n := d.shop.db.PGX.Notifier()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { n.Run(ctx, func(err error) { fmt.Fprintln(d.log, err) }) })
	d.onEnd(func(context.Context) error {
		stop()
		wg.Wait()
		return nil
	})
	return n.Committed
}

// produce places the orders; with Crash relays are killed meanwhile, and it
// goes on until enough kills have counted.
func (d *demo) produce(ctx context.Context, cancel context.CancelCauseFunc) error {
	if !d.opts.Crash {
		return d.shop.produce(ctx, func(_ context.Context, ticket int64) bool { return ticket < int64(d.opts.Orders) })
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { d.sample(sampling) })
	crashed := make(chan struct{})
	wg.Go(func() {
		defer close(crashed)
		if err := d.crash(ctx); err != nil {
			cancel(err)
		}
	})
	var extra sync.Once
	err := d.shop.produce(ctx, func(ctx context.Context, ticket int64) bool {
		if ticket < int64(d.opts.Orders) {
			return ctx.Err() == nil
		}
		extra.Do(func() {
			time.AfterFunc(crashPatience, func() {
				if n := d.killed.Load(); n < kills {
					cancel(fmt.Errorf("only %d of %d relays could be killed over %d undelivered messages within %v after the last of the --orders: use more --producers", n, kills, killBacklog, crashPatience))
				}
			})
		})
		// Beyond the orders asked for, only as many as keep a backlog.
		for d.backlog.Load() >= 4*killBacklog && ctx.Err() == nil {
			select {
			case <-crashed:
				return false
			default:
				pause(ctx, 10*time.Millisecond)
			}
		}
		select {
		case <-crashed:
			return false
		default:
			return ctx.Err() == nil
		}
	})
	if err != nil {
		return err
	}
	<-crashed
	return context.Cause(ctx)
}

// settle waits until the outbox is empty and the consumer has applied all that
// is in the stream. If nothing moves for settlePatience it says so and returns
// as well: the verdict tells what is missing.
func (d *demo) settle(ctx context.Context) error {
	var last [2]int64
	moved := time.Now()
	for {
		pending, err := d.shop.pending(ctx)
		if err != nil {
			return err
		}
		idle, err := d.consumer.idle(ctx)
		if err != nil {
			return err
		}
		if pending == 0 && idle {
			return nil
		}
		if now := [2]int64{pending, d.consumer.applied.Load() + d.consumer.copies.Load()}; now != last {
			last, moved = now, time.Now()
		}
		if time.Since(moved) > settlePatience {
			fmt.Fprintf(d.opts.Stderr, "\nnothing has moved for %v: %d rows are left in the outbox; judging the run as it stands\n", settlePatience, pending)
			return nil
		}
		pause(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// tellLog shows the end of the relays' log, which is about to go.
func (d *demo) tellLog() {
	const most = 20
	data, err := os.ReadFile(d.log.Name())
	if err != nil || len(data) == 0 {
		return
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) > most {
		lines = append([]string{fmt.Sprintf("(%d lines before)", len(lines)-most)}, lines[len(lines)-most:]...)
	}
	fmt.Fprintf(d.opts.Stderr, "the relays said:\n  %s\n", strings.Join(lines, "\n  "))
}
