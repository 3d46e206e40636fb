package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/bench/internal/contest"
	"github.com/postrider/postrider/bench/internal/report"
)

const (
	streamSize      = 1 << 22 // more than any live run commits
	keysPerProducer = 50
)

// produce runs workers until ctx ends; each calls write with the messages it
// took. Every worker has keys of its own, so that the order of a key is known.
// rate is of all workers together; 0: as fast as they can.
type produce struct {
	workers, perTx int
	rate           float64
	write          func(ctx context.Context, worker int, msgs []contest.Message) error
	committed      func(numbers []int) // nil: nobody asks
	begins         func()              // the measured part; nil: nobody asks
}

// run produces for a time, after a tenth of it to open the connections. It returns
// all transactions, and what was measured of those after the start.
func (p produce) run(ctx context.Context, s *contest.Stream, span time.Duration) (commits int, m sample, err error) {
	warm, _, _, err := p.during(ctx, s, span/10)
	if err != nil {
		return 0, nil, err
	}
	if p.begins != nil {
		p.begins()
	}
	commits, took, lasted, err := p.during(ctx, s, span)
	return warm + commits, sample{
		report.Rate: float64(commits) / lasted.Seconds(), "p50": percentile(took, 0.5), "p99": percentile(took, 0.99),
	}, err
}

// during returns the number of transactions, how long each took in ms, and the
// time until the last one was finished.
func (p produce) during(ctx context.Context, s *contest.Stream, span time.Duration) (commits int, took []float64, lasted time.Duration, err error) {
	began := time.Now()
	ctx, stop := context.WithTimeout(ctx, span)
	defer stop()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for w := range p.workers {
		wg.Go(func() {
			n, times, werr := p.work(ctx, s, w)
			mu.Lock()
			defer mu.Unlock()
			commits += n
			took = append(took, times...)
			err = errors.Join(err, werr)
		})
	}
	wg.Wait()
	return commits, took, time.Since(began), err
}

func (p produce) work(ctx context.Context, s *contest.Stream, worker int) (commits int, took []float64, err error) {
	var interval time.Duration
	next := time.Now()
	if p.rate > 0 {
		interval = time.Duration(float64(p.workers) / p.rate * float64(time.Second))
		next = next.Add(time.Duration(rand.Int64N(int64(interval))))
	}
	for ctx.Err() == nil {
		if wait := time.Until(next); interval > 0 && wait > 0 {
			time.Sleep(wait)
		}
		next = next.Add(interval)
		numbers, msgs := make([]int, 0, p.perTx), make([]contest.Message, 0, p.perTx)
		for i := range p.perTx {
			n, m, err := s.Take(worker*keysPerProducer + (commits*p.perTx+i)%keysPerProducer)
			if err != nil {
				return commits, took, err
			}
			numbers, msgs = append(numbers, n), append(msgs, m)
		}
		began := time.Now()
		// A transaction that has begun is finished: its outcome must be known.
		if err := p.write(context.WithoutCancel(ctx), worker, msgs); err != nil {
			return commits, took, err
		}
		took = append(took, time.Since(began).Seconds()*1000)
		commits++
		if p.committed != nil {
			p.committed(numbers)
		}
	}
	return commits, took, nil
}

// percentile of values that it sorts; 0 of none.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(float64(len(values))*p), len(values)-1)]
}

// wake is how a relay learns of a commit.
type wake int

const (
	noRelay wake = iota
	polls
	woken    // in process
	notified // by the database, from one connection
)

var wakes = map[wake]string{noRelay: "no relay", polls: "relay polls", woken: "relay woken", notified: "relay notified"}

// waker returns what producers call after each commit.
func (w wake) waker(ctx context.Context, c *contest.Postrider) (committed func(), end func() error, err error) {
	switch w {
	case woken:
		return c.Wake, func() error { return nil }, nil
	case notified:
		return c.Notify(ctx)
	}
	return func() {}, func() error { return nil }, nil
}

func runProducers(ctx context.Context, r *Runner) error {
	for _, n := range []int{16, 64} {
		var es []entry
		for _, m := range products {
			for _, w := range []wake{noRelay, polls, woken} {
				es = append(es, r.beside(m, n, w))
			}
		}
		es = append(es, r.beside(pgxstoreMaker, n, notified))
		es = append(es, r.beside(claimMaker, n, noRelay), r.beside(claimMaker, n, polls))
		if err := r.compare(ctx, fmt.Sprintf("%d producers", n), es...); err != nil {
			return err
		}
	}
	return nil
}

// beside is producers with or without a relay, of the contestant's kind.
func (r *Runner) beside(m contest.Maker, producers int, w wake) entry {
	return entry{m.Name + ", " + wakes[w], func(ctx context.Context) (sample, error) {
		return r.inPlace(ctx, m, 1, func(c contest.Contestant, _ contest.Place) (s sample, err error) {
			writer, ok := c.(contest.Writer)
			if !ok {
				return nil, fmt.Errorf("%s has no way to write", m.Name)
			}
			write := func(ctx context.Context, _ int, msgs []contest.Message) error { return writer.Write(ctx, msgs) }
			stream := contest.NewStream(streamSize, producers*keysPerProducer)
			p := contest.NewPublisher(stream.Load())
			if m.Name == claimMaker.Name {
				p.AnyOrder() // it claims by id, and ids commit out of order
			}
			job := produce{workers: producers, perTx: 1, write: write}
			deliver := func(ctx context.Context) error { return c.Deliver(ctx, p) }
			if pr, ok := c.(*contest.Postrider); ok {
				if err := pr.MakeRelays(p.Transport()); err != nil {
					return nil, err
				}
				deliver = pr.RunRelays
				committed, end, err := w.waker(ctx, pr)
				if err != nil {
					return nil, err
				}
				defer func() { err = errors.Join(err, end()) }()
				job.committed = func([]int) { committed() }
			}
			return r.live(ctx, c, stream, job, w != noRelay, p.Check, deliver)
		})
	}}
}

// live runs producers for a time beside a relay, waits for what is left, and
// stops.
func (r *Runner) live(ctx context.Context, c contest.Contestant, stream *contest.Stream, job produce, relayed bool, check *contest.Check, deliver func(context.Context) error) (sample, error) {
	if err := r.checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := r.meter.Read(ctx)
	if err != nil {
		return nil, err
	}
	commits, backlog := 0, 0
	var s sample
	var produced error
	work := func() {
		commits, s, produced = job.run(ctx, stream, r.span(3*time.Second))
		backlog = commits*job.perTx - check.Got()
	}
	if relayed {
		done := make(chan struct{})
		go func() {
			defer close(done)
			work()
			for end := time.Now().Add(patience); check.Got() < commits*job.perTx && check.Err() == nil && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}()
		_, err = runUntil(ctx, done, 2*patience, deliver)
	} else {
		work()
	}
	if err = errors.Join(err, produced, check.Err()); err == nil && relayed && check.Got() != commits*job.perTx {
		err = fmt.Errorf("%d messages were committed and %d arrived", commits*job.perTx, check.Got())
	}
	if err == nil {
		err = checkPending(ctx, c, commits*job.perTx-check.Got())
	}
	if err != nil {
		return nil, err
	}
	if relayed {
		s["backlog"] = float64(backlog)
	}
	return s, r.cost(ctx, c, before, commits*job.perTx, s)
}

func runEnqueue(ctx context.Context, r *Runner) error {
	for _, n := range []int{1, 10, 100, 1000} {
		es := []entry{r.business("business alone", pgxstoreMaker, 0, false)}
		if n == 1 {
			es = append(es, r.business("business alone, database/sql", sqlstoreMaker, 0, false))
		}
		es = append(es,
			r.business("postrider pgxstore, pipelined", pgxstoreMaker, n, true), r.business("postrider pgxstore", pgxstoreMaker, n, false),
			r.business("postrider sqlstore", sqlstoreMaker, n, false), r.business("claim table", claimMaker, n, false),
			r.business("watermill queue", queueMaker, n, false), r.business("river", riverMaker, n, false))
		name := fmt.Sprintf("%d messages", n)
		if n == 1 {
			name = "1 message"
		}
		if err := r.compare(ctx, name, es...); err != nil {
			return err
		}
	}
	return nil
}

// business is workers of a business that write perTx messages in each
// transaction.
func (r *Runner) business(name string, m contest.Maker, perTx int, queued bool) entry {
	const workers = 16
	return entry{name, func(ctx context.Context) (sample, error) {
		return r.inPlace(ctx, m, 1, func(c contest.Contestant, place contest.Place) (sample, error) {
			pool, err := place.Pool(ctx, workers)
			if err != nil {
				return nil, err
			}
			defer pool.Close()
			b, err := contest.BusinessOf(c, pool, queued)
			if err == nil {
				err = b.Prepare(ctx, workers)
			}
			if err == nil {
				err = r.checkpoint(ctx)
			}
			if err != nil {
				return nil, err
			}
			before, err := r.meter.Read(ctx)
			if err != nil {
				return nil, err
			}
			job := produce{workers: workers, perTx: perTx, write: b.Transact}
			commits, s, err := job.run(ctx, contest.NewStream(streamSize, workers*keysPerProducer), r.span(1500*time.Millisecond))
			if err == nil {
				err = checkPending(ctx, c, commits*perTx)
			}
			if err != nil {
				return nil, err
			}
			if perTx > 0 {
				s["messages"] = s[report.Rate] * float64(perTx)
			}
			pool.Close()
			return s, r.cost(ctx, c, before, commits, s) // here per transaction
		})
	}}
}

// stopwatch knows when each message was committed and acknowledged.
type stopwatch struct {
	began            time.Time
	from             atomic.Int64   // what was committed before does not count
	committed, acked []atomic.Int64 // ns since began; 0: not yet
}

func newStopwatch(most int) *stopwatch {
	return &stopwatch{began: time.Now(), committed: make([]atomic.Int64, most), acked: make([]atomic.Int64, most)}
}

func (w *stopwatch) now() int64 { return max(int64(time.Since(w.began)), 1) }

// times are from commit to acknowledgement in ms. An acknowledgement can be
// there before the answer to the commit is: 0.
func (w *stopwatch) times() (ms []float64) {
	for i := range w.committed {
		if c, a := w.committed[i].Load(), w.acked[i].Load(); c > w.from.Load() && a > 0 {
			ms = append(ms, max(0, float64(a-c)/1e6))
		}
	}
	return ms
}
