package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/bench/internal/contest"
)

// The contestants.
var (
	sqlstoreMaker = contest.Maker{Name: "postrider sqlstore", New: contest.SQLStore}
	pgxstoreMaker = contest.Maker{Name: "postrider pgxstore", New: contest.PGXStore}
	claimMaker    = contest.Maker{Name: "claim and delete", New: contest.Claim}
	inOrderMaker  = contest.Maker{Name: "claim, one per key", New: contest.ClaimOrdered}
	readMaker     = contest.Maker{Name: "raw read", New: contest.RawRead}
	deleteMaker   = contest.Maker{Name: "raw read and delete", New: contest.RawDelete}
	queueMaker    = contest.Maker{Name: "watermill queue", New: contest.WatermillQueue}
	offsetsMaker  = contest.Maker{Name: "watermill offsets", New: contest.WatermillOffsets}
	forwardMaker  = contest.Maker{Name: "watermill forwarder", New: contest.WatermillForwarder}
	riverMaker    = contest.Maker{Name: "river", New: contest.River}
)

// products are Postrider's stores.
var products = []contest.Maker{pgxstoreMaker, sqlstoreMaker}

// drain is one run: rows are there, a contestant delivers them.
type drain struct {
	messages int
	keys     int
	keyOf    func(n int) int
	latency  time.Duration
	perBatch bool
	relays   int
	limit    time.Duration // ends the run, which then counts what was delivered; 0: it must finish
	tune     func(*contest.Postrider)
}

// patience is how long a run may take that must finish.
const patience = 2 * time.Minute

func (d drain) load() *contest.Load {
	return &contest.Load{Messages: d.messages, Keys: d.keys, KeyOf: d.keyOf}
}

// drains makes an entry of a contestant.
func (r *Runner) drains(m contest.Maker, d drain) entry {
	return entry{m.Name, func(ctx context.Context) (sample, error) { return r.drain(ctx, m, d) }}
}

// open makes a contestant in an empty place.
func (r *Runner) open(ctx context.Context, m contest.Maker, d drain) (contest.Contestant, contest.Place, func() error, error) {
	place, leave, err := r.place(ctx)
	if err != nil {
		return nil, place, nil, err
	}
	c, err := m.New(ctx, place)
	if err != nil {
		return nil, place, nil, errors.Join(err, leave())
	}
	if p, ok := c.(*contest.Postrider); ok {
		p.Relays = d.relays
		if d.tune != nil {
			d.tune(p)
		}
	}
	if err := c.Prepare(ctx); err != nil {
		c.Close()
		return nil, place, nil, errors.Join(err, leave())
	}
	return c, place, leave, nil
}

func (r *Runner) drain(ctx context.Context, m contest.Maker, d drain) (s sample, err error) {
	c, place, leave, err := r.open(ctx, m, d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	defer c.Close()
	load := d.load()
	if err := r.checkpoint(ctx); err != nil {
		return nil, err
	}
	if err := c.Fill(ctx, load, 0, load.Messages); err != nil {
		return nil, err
	}
	if err := r.settle(ctx, place); err != nil {
		return nil, err
	}
	return r.measure(ctx, c, load, d)
}

// measure runs a contestant over what is pending and closes it, so that the
// server knows its counts.
func (r *Runner) measure(ctx context.Context, c contest.Contestant, load *contest.Load, d drain) (sample, error) {
	p := contest.NewPublisher(load)
	p.Latency, p.PerBatch = d.latency, d.perBatch
	before, err := r.meter.Read(ctx)
	if err != nil {
		return nil, err
	}
	took, err := runUntil(ctx, c, p, d.limit)
	got := p.Got()
	if err == nil {
		err = p.Err()
	}
	if err == nil && d.limit == 0 && got < load.Messages {
		err = fmt.Errorf("%d of %d messages arrived within %v", got, load.Messages, patience)
	}
	if pending, ok := c.(contest.Pending); ok && err == nil {
		var left int
		if left, err = pending.Pending(ctx); err == nil && left != load.Messages-got {
			err = fmt.Errorf("%d messages arrived of %d, and %d are pending", got, load.Messages, left)
		}
	}
	if err != nil {
		return nil, err
	}
	c.Close()
	if err := r.meter.Quiet(ctx, contest.Application); err != nil {
		return nil, err
	}
	after, err := r.meter.Read(ctx)
	if err != nil {
		return nil, err
	}
	s := sample{"rate": float64(got) / took.Seconds()}
	r.meter.Cost(before, after, got, s)
	return s, nil
}

// runUntil delivers until everything has arrived or the time is over, stops the
// contestant, and returns how long it took to the last message.
func runUntil(ctx context.Context, c contest.Contestant, p *contest.Publisher, limit time.Duration) (time.Duration, error) {
	run, stop := context.WithCancel(ctx)
	defer stop()
	if limit == 0 {
		limit = patience
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- c.Deliver(run, p) }()
	select {
	case <-p.Done():
	case <-timer.C:
	case err := <-ended:
		return 0, fmt.Errorf("the contestant ended by itself: %w", err)
	case <-ctx.Done():
	}
	took := time.Since(began)
	stop()
	select {
	case err := <-ended:
		return took, errors.Join(ctx.Err(), err)
	case <-time.After(time.Minute):
		return took, errors.New("the contestant did not stop within a minute")
	}
}
