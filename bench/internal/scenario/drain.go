package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/bench/internal/contest"
	"github.com/postrider/postrider/bench/internal/meter"
	"github.com/postrider/postrider/bench/internal/report"
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

	sqliteMaker      = contest.Maker{Name: "postrider sqlite", New: contest.SQLite, SQLite: true}
	claimSQLiteMaker = contest.Maker{Name: "claim and delete", New: contest.ClaimSQLite, SQLite: true}

	mysqlMaker      = contest.Maker{Name: "postrider mariadb", New: contest.MySQL}
	claimMySQLMaker = contest.Maker{Name: "claim and delete", New: contest.ClaimMySQL}
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
	refuse   func(n int) bool
	enough   int // the run is over after so many; 0: all
}

// named is a contestant under conditions of its own.
func named(m contest.Maker, name string) contest.Maker {
	m.Name = m.Name + ", " + name
	return m
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

// open makes a contestant in a place. close, which may be called again, ends its
// connections.
func open(ctx context.Context, m contest.Maker, place contest.Place, relays int) (contest.Contestant, error) {
	c, err := m.New(ctx, place)
	if err != nil {
		return nil, err
	}
	if p, ok := c.(*contest.Postrider); ok {
		p.Relays = relays
	}
	if err := c.Prepare(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// inPlace calls fn with a contestant in an empty place.
func (r *Runner) inPlace(ctx context.Context, m contest.Maker, relays int, fn func(contest.Contestant, contest.Place) (sample, error)) (s sample, err error) {
	place, leave, err := r.place(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	c, err := open(ctx, m, place, relays)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s, err = fn(c, place)
	if m.SQLite {
		for _, metric := range []string{"server_cpu", "statements", "round_trips", "wal", "dead_tuples"} {
			delete(s, metric) // PostgreSQL's
		}
	}
	return s, err
}

func (r *Runner) drain(ctx context.Context, m contest.Maker, d drain) (sample, error) {
	return r.inPlace(ctx, m, d.relays, func(c contest.Contestant, place contest.Place) (sample, error) {
		load := d.load()
		if err := r.fill(ctx, c, place, load); err != nil {
			return nil, err
		}
		return r.measure(ctx, c, load, d)
	})
}

// fill commits a load and brings its place into the same state for everybody.
func (r *Runner) fill(ctx context.Context, c contest.Contestant, place contest.Place, load *contest.Load) error {
	if err := r.checkpoint(ctx); err != nil {
		return err
	}
	if err := c.Fill(ctx, load, 0, load.Messages); err != nil {
		return err
	}
	return r.settle(ctx, place)
}

// measure runs a contestant over what is pending and closes it, so that the
// server knows its counts.
func (r *Runner) measure(ctx context.Context, c contest.Contestant, load *contest.Load, d drain) (sample, error) {
	p := contest.NewPublisher(load)
	p.Latency, p.PerBatch, p.Refuse = d.latency, d.perBatch, d.refuse
	enough := load.Messages
	if d.enough > 0 {
		enough = d.enough
		p.Until(enough)
	}
	before, err := r.meter.Read(ctx)
	if err != nil {
		return nil, err
	}
	took, err := runUntil(ctx, p.Done(), d.limit, func(ctx context.Context) error { return c.Deliver(ctx, p) })
	if err == nil {
		err = p.Err()
	}
	if err == nil && d.limit == 0 && p.Got() < enough {
		err = fmt.Errorf("%d of %d messages arrived within %v", p.Got(), enough, patience)
	}
	if err == nil {
		err = checkPending(ctx, c, load.Messages-p.Got())
	}
	if err != nil {
		return nil, err
	}
	s := sample{report.Rate: float64(p.Got()) / took.Seconds()}
	if first := p.First(); !first.IsZero() {
		s["first"] = first.Sub(before.At).Seconds() * 1000
	}
	return s, r.cost(ctx, c, before, p.Got(), s)
}

// checkPending compares what a contestant still has with what it should have.
func checkPending(ctx context.Context, c contest.Contestant, want int) error {
	p, ok := c.(contest.Pending)
	if !ok {
		return nil
	}
	left, err := p.Pending(ctx)
	if err == nil && left != want {
		err = fmt.Errorf("%d messages are pending, want %d", left, want)
	}
	return err
}

// cost closes a contestant and adds what it cost since a reading.
func (r *Runner) cost(ctx context.Context, c contest.Contestant, before meter.Reading, messages int, into sample) error {
	c.Close()
	if err := r.meter.Quiet(ctx, contest.Application); err != nil {
		return err
	}
	after, err := r.meter.Read(ctx)
	if err != nil {
		return err
	}
	r.meter.Cost(before, after, messages, into)
	return nil
}

// runUntil delivers until done is closed or the time is over (0: patience),
// stops, and returns how long it took to that moment.
func runUntil(ctx context.Context, done <-chan struct{}, limit time.Duration, deliver func(context.Context) error) (time.Duration, error) {
	run, stop := context.WithCancel(ctx)
	defer stop()
	if limit == 0 {
		limit = patience
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- deliver(run) }()
	select {
	case <-done:
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
