package scenario

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/bench/internal/contest"
	"github.com/postrider/postrider/bench/internal/report"
)

// atBroker calls fn with a product in an empty place and a NATS of its own.
func (r *Runner) atBroker(ctx context.Context, m contest.Maker, fn func(*contest.Postrider, contest.Place, *contest.NATS) (sample, error)) (sample, error) {
	return r.inPlace(ctx, m, 1, func(c contest.Contestant, place contest.Place) (s sample, err error) {
		n, err := contest.StartNATS(ctx, filepath.Join(place.Dir, "nats"))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, n.Stop()) }()
		return fn(c.(*contest.Postrider), place, n)
	})
}

// count closes done when target messages have been accepted.
type count struct {
	n      atomic.Int64
	target int64
	done   chan struct{}
}

func newCount(target int) *count { return &count{target: int64(target), done: make(chan struct{})} }

func (c *count) accepted(int) {
	if c.n.Add(1) == c.target {
		close(c.done)
	}
}

func runNATS(ctx context.Context, r *Runner) error {
	load := func() *contest.Load { return &contest.Load{Messages: r.scaled(50_000, 500), Keys: 1000} }
	var es []entry
	for _, m := range products {
		es = append(es, entry{m.Name, func(ctx context.Context) (sample, error) {
			return r.atBroker(ctx, m, func(c *contest.Postrider, place contest.Place, n *contest.NATS) (sample, error) {
				l := load()
				if err := r.fill(ctx, c, place, l); err != nil {
					return nil, err
				}
				return r.toBroker(ctx, c, l, n, func(ctx context.Context, got *count) error {
					t, err := n.Transport(got.accepted)
					if err != nil {
						return err
					}
					return c.Relay(ctx, t)
				})
			})
		}})
	}
	alone := func(ctx context.Context) (sample, error) {
		return r.atBroker(ctx, sqlstoreMaker, func(c *contest.Postrider, _ contest.Place, n *contest.NATS) (sample, error) {
			l := load()
			return r.toBroker(ctx, c, l, n, func(ctx context.Context, got *count) error { return n.Alone(ctx, l, got.accepted) })
		})
	}
	return r.compare(ctx, "50,000 pending", append(es, entry{"NATS alone", alone})...)
}

// toBroker times a delivery of a load to NATS and reads the stream back.
func (r *Runner) toBroker(ctx context.Context, c contest.Contestant, l *contest.Load, n *contest.NATS, deliver func(context.Context, *count) error) (sample, error) {
	got := newCount(l.Messages)
	before, err := r.meter.Read(ctx)
	if err != nil {
		return nil, err
	}
	took, err := runUntil(ctx, got.done, 0, func(ctx context.Context) error { return deliver(ctx, got) })
	if err == nil {
		err = checkPending(ctx, c, 0)
	}
	if err != nil {
		return nil, err
	}
	s := sample{report.Rate: float64(l.Messages) / took.Seconds()}
	if err := r.cost(ctx, c, before, l.Messages, s); err != nil {
		return nil, err
	}
	return s, n.Verify(ctx, contest.NewCheck(l), l.Messages)
}

const ackProducers = 16

func runAck(ctx context.Context, r *Runner) error {
	type contender struct {
		m contest.Maker
		w wake
	}
	contenders := []contender{{pgxstoreMaker, woken}, {pgxstoreMaker, notified}, {pgxstoreMaker, polls}, {sqlstoreMaker, woken}}
	full := map[string]float64{}
	for _, m := range products {
		s, err := r.acks(ctx, m, woken, 0)
		if err != nil {
			return fmt.Errorf("full load of %s: %w", m.Name, err)
		}
		full[m.Name] = s[report.Rate]
		r.say("full load of %s: %s a second", m.Name, report.Figure(s[report.Rate]))
	}
	for _, part := range []float64{0.1, 0.5, 0.9} {
		var es []entry
		for _, c := range contenders {
			es = append(es, entry{c.m.Name + ", " + wakes[c.w], func(ctx context.Context) (sample, error) {
				return r.acks(ctx, c.m, c.w, max(part*full[c.m.Name], 50))
			}})
		}
		if err := r.compare(ctx, fmt.Sprintf("%.0f %% of full load", part*100), es...); err != nil {
			return err
		}
	}
	return nil
}

// acks is producers at a rate (0: as fast as they can) and a relay to NATS.
func (r *Runner) acks(ctx context.Context, m contest.Maker, w wake, rate float64) (sample, error) {
	return r.atBroker(ctx, m, func(c *contest.Postrider, _ contest.Place, n *contest.NATS) (_ sample, err error) {
		stream := contest.NewStream(streamSize, ackProducers*keysPerProducer)
		watch := newStopwatch(streamSize)
		var acked atomic.Int64
		t, err := n.Transport(func(i int) {
			watch.acked[i].Store(watch.now())
			acked.Add(1)
		})
		if err == nil {
			err = c.MakeRelays(t)
		}
		if err != nil {
			return nil, err
		}
		tell, end, err := w.waker(ctx, c)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, end()) }()
		job := produce{
			workers: ackProducers, perTx: 1, rate: rate, begins: func() { watch.from.Store(watch.now()) },
			write: func(ctx context.Context, _ int, msgs []contest.Message) error { return c.Write(ctx, msgs) },
			committed: func(numbers []int) {
				for _, i := range numbers {
					watch.committed[i].Store(watch.now())
				}
				tell()
			},
		}
		commits, atEnd := 0, 0
		var s sample
		var produced error
		done := make(chan struct{})
		go func() {
			defer close(done)
			commits, s, produced = job.run(ctx, stream, r.span(3*time.Second))
			atEnd = int(acked.Load())
			for end := time.Now().Add(patience); int(acked.Load()) < commits && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}()
		_, err = runUntil(ctx, done, 2*patience, c.RunRelays)
		if err = errors.Join(err, produced); err == nil {
			err = n.Verify(ctx, contest.NewCheck(stream.Load()), commits)
		}
		if err == nil {
			err = checkPending(ctx, c, 0)
		}
		if err != nil {
			return nil, err
		}
		// What was behind at the end was not sustained.
		times, whole := watch.times(), float64(atEnd)/float64(max(commits, 1))
		return sample{
			report.Rate: s[report.Rate] * whole, "p50": percentile(times, 0.5), "p99": percentile(times, 0.99),
			"max": percentile(times, 1), "backlog": float64(commits - atEnd),
		}, nil
	})
}
