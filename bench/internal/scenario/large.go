package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/bench/internal/contest"
	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/outbox"
)

// largeMaker is the product in scenarios that are too long for both stores.
var largeMaker = pgxstoreMaker

func runOtherDatabase(ctx context.Context, r *Runner) error {
	const name = "postrider_bench_other"
	if _, err := r.admin.Exec(ctx, `DROP DATABASE IF EXISTS `+name); err != nil {
		r.skip(err.Error())
		return nil
	}
	if _, err := r.admin.Exec(ctx, `CREATE DATABASE `+name); err != nil {
		r.skip(err.Error())
		return nil
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, err := r.admin.Exec(ctx, `DROP DATABASE `+name+` WITH (FORCE)`)
		if err != nil {
			r.say("DROP DATABASE %s: %v", name, err)
		}
	}()
	c, err := pgx.ParseConfig(r.opts.URL)
	if err != nil {
		return err
	}
	c.Database = name
	other, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	defer other.Close(context.WithoutCancel(ctx))
	if _, err := other.Exec(ctx, `CREATE TABLE t (n int); BEGIN; INSERT INTO t VALUES (1)`); err != nil {
		return err
	}
	d := drain{messages: r.scaled(100_000, 500)}
	es := append(r.all(d, products...), r.drains(claimMaker, d), r.drains(queueMaker, d), r.drains(offsetsMaker, d.within(r.span(5*time.Second))))
	return r.compare(ctx, "100,000 pending", es...)
}

// stay makes a place that holds until the scenario ends.
func (r *Runner) stay(ctx context.Context, fn func(contest.Place) error) error {
	place, leave, err := r.place(ctx)
	if err != nil {
		return err
	}
	return errors.Join(fn(place), leave())
}

func runAhead(ctx context.Context, r *Runner) error {
	aside := r.scaled(1_000_000, 1000)
	d := drain{messages: r.scaled(100_000, 500)}
	return r.stay(ctx, func(free contest.Place) error {
		return r.stay(ctx, func(full contest.Place) error {
			c, err := open(ctx, largeMaker, full, 1)
			if err != nil {
				return err
			}
			load := &contest.Load{Messages: aside}
			for _, t := range []contest.Table{contest.Deferred, contest.Dead} {
				err = errors.Join(err, c.(*contest.Postrider).Copy(ctx, t, load, 0, aside))
			}
			c.Close()
			if err = errors.Join(err, r.settle(ctx, full)); err != nil {
				return err
			}
			in := func(place contest.Place) func(context.Context) (sample, error) {
				return func(ctx context.Context) (sample, error) { return r.drainAgain(ctx, place, d) }
			}
			return r.compare(ctx, "100,000 due",
				entry{largeMaker.Name + ", nothing in front", in(free)}, entry{largeMaker.Name + ", 1M future and 1M dead", in(full)})
		})
	})
}

// drainAgain is a drain in a place that is kept.
func (r *Runner) drainAgain(ctx context.Context, place contest.Place, d drain) (sample, error) {
	c, err := open(ctx, largeMaker, place, 1)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	load := d.load()
	if err := r.fill(ctx, c, place, load); err != nil {
		return nil, err
	}
	return r.measure(ctx, c, load, d)
}

// window is what one figure of a flow covers.
const window = 5 * time.Second

func runHorizon(ctx context.Context, r *Runner) error {
	r.now.Step = window.Seconds()
	for _, keys := range []int{0, 1000} {
		variant := "without keys"
		if keys > 0 {
			variant = "1,000 keys"
		}
		makers := []contest.Maker{largeMaker}
		if keys == 0 {
			makers = append(makers, claimMaker)
		}
		for _, m := range makers {
			for _, held := range []bool{false, true} {
				name, span := m.Name+", free", r.span(time.Minute)
				if held {
					name, span = m.Name+", held", r.span(2*time.Minute)
				}
				if m.Name != largeMaker.Name {
					span = r.span(30 * time.Second)
				}
				if err := r.flow(ctx, variant, name, m, keys, span, held); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// flow keeps messages coming for a time and adds a sample for each window.
func (r *Runner) flow(ctx context.Context, variant, name string, m contest.Maker, keys int, span time.Duration, held bool) error {
	_, err := r.inPlace(ctx, m, 1, func(c contest.Contestant, place contest.Place) (sample, error) {
		if held {
			release, err := r.holdHorizon(ctx)
			if err != nil {
				return nil, err
			}
			defer release()
		}
		load := &contest.Load{Messages: 1 << 25, Keys: keys}
		p := contest.NewPublisher(load)
		var filled int
		var fillErr error
		var rates []float64
		done := make(chan struct{})
		go func() {
			defer close(done)
			rates, filled, fillErr = feed(ctx, c, p, load, span)
		}()
		_, err := runUntil(ctx, done, span+patience, func(ctx context.Context) error { return c.Deliver(ctx, p) })
		err = errors.Join(err, fillErr, p.Err())
		if err == nil && p.Got() != filled {
			err = fmt.Errorf("%d messages were committed and %d arrived", filled, p.Got())
		}
		if err != nil {
			return nil, err
		}
		s := r.series(variant, name)
		for _, x := range rates {
			s.Samples = append(s.Samples, sample{report.Rate: x})
		}
		quarter := max(len(rates)/4, 1)
		last := s.Samples[len(s.Samples)-1]
		if first := mean(rates[:quarter]); first > 0 {
			last["last_to_first"] = mean(rates[len(rates)-quarter:]) / first
		}
		r.say("%-10s %-22s %-24s %d messages, %s", r.now.Name, variant, name, filled, brief(last))
		return nil, nil
	})
	if err != nil {
		r.fail(variant, name, err)
	}
	return ctx.Err()
}

func mean(xs []float64) (m float64) {
	for _, x := range xs {
		m += x / float64(len(xs))
	}
	return m
}

// holdHorizon keeps a snapshot open.
func (r *Runner) holdHorizon(ctx context.Context) (release func(), err error) {
	conn, err := pgx.Connect(ctx, r.opts.URL)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`); err != nil {
		conn.Close(ctx)
		return nil, err
	}
	return func() { conn.Close(context.WithoutCancel(ctx)) }, nil
}

// feed loads messages as they are delivered, for a time, and then waits for the
// rest. It returns the rate of each window.
func feed(ctx context.Context, c contest.Contestant, p *contest.Publisher, load *contest.Load, span time.Duration) (rates []float64, filled int, err error) {
	const pending, chunk = 20_000, 2000
	began := time.Now()
	at, got := began, 0
	step := min(window, span/4) // short flows are for a look only
	for now := began; now.Sub(began) < span && p.Err() == nil && ctx.Err() == nil; now = time.Now() {
		if now.Sub(at) >= step {
			rates = append(rates, float64(p.Got()-got)/now.Sub(at).Seconds())
			at, got = now, p.Got()
		}
		if filled-p.Got() > pending-chunk {
			time.Sleep(time.Millisecond)
			continue
		}
		if filled+chunk > load.Messages {
			return rates, filled, contest.ErrUsedUp
		}
		if err := c.Fill(ctx, load, filled, filled+chunk); err != nil {
			return rates, filled, err
		}
		filled += chunk
	}
	rates = append(rates, float64(p.Got()-got)/time.Since(at).Seconds())
	for end := time.Now().Add(patience); p.Got() < filled && p.Err() == nil && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	return rates, filled, ctx.Err()
}

func runBacklog(ctx context.Context, r *Runner) error {
	return r.stay(ctx, func(place contest.Place) error {
		unit := r.scaled(10_000, 100)
		b := &backlog{r: r, place: place, unit: unit, load: &contest.Load{Messages: r.scaled(12_000_000, 120_000), Keys: 100_000}}
		b.load.Message(0)
		b.check = contest.NewCheck(b.load)
		for _, level := range []struct {
			name string
			rows int
		}{{"10 thousand pending", 10_000}, {"1 million pending", 1_000_000}, {"10 million pending", 10_000_000}} {
			rows := r.scaled(level.rows, 100)
			if err := r.compare(ctx, level.name, entry{largeMaker.Name, func(ctx context.Context) (sample, error) { return b.at(ctx, rows) }}); err != nil {
				return err
			}
		}
		return r.compare(ctx, "memory with 10 million pending", entry{largeMaker.Name, b.memory})
	})
}

// backlog is one table that grows.
type backlog struct {
	r      *Runner
	place  contest.Place
	unit   int
	load   *contest.Load
	check  *contest.Check
	filled int
	taken  int // by relays in other processes
}

// at fills up to rows, reads, and delivers a unit.
func (b *backlog) at(ctx context.Context, rows int) (sample, error) {
	c, err := open(ctx, largeMaker, b.place, 1)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if more := rows - (b.filled - b.check.Got()); more > 0 {
		began := time.Now()
		if err := c.Fill(ctx, b.load, b.filled, b.filled+more); err != nil {
			return nil, err
		}
		b.filled += more
		if err := b.r.settle(ctx, b.place); err != nil {
			return nil, err
		}
		b.r.say("%d rows loaded in %v", more, time.Since(began).Round(time.Second))
	}
	s := sample{}
	if err := readCost(ctx, c.(*contest.Postrider), b.unit, s); err != nil {
		return nil, err
	}
	p := &contest.Publisher{Check: b.check}
	target := b.check.Got() + b.unit
	p.Until(target)
	took, err := runUntil(ctx, p.Done(), 0, func(ctx context.Context) error { return c.Deliver(ctx, p) })
	if err == nil {
		err = p.Err()
	}
	if err == nil && p.Got() < target {
		err = fmt.Errorf("%d of %d messages arrived", p.Got()-(target-b.unit), b.unit)
	}
	if err == nil {
		err = checkPending(ctx, c, b.filled-p.Got())
	}
	s[report.Rate] = float64(b.unit) / took.Seconds()
	return s, err
}

// readCost reads the first rows of all lanes as a relay does.
func readCost(ctx context.Context, c *contest.Postrider, rows int, into sample) error {
	routes, err := c.Store.Routes(ctx)
	if err != nil {
		return err
	}
	session, err := c.Store.LaneSession(ctx, "read")
	if err != nil {
		return err
	}
	defer session.Close()
	var ms []float64
	var total time.Duration
	read := 0
	dst := make([]outbox.LaneRow, 1024)
	for range 5 {
		var reads []outbox.LaneRead
		for i := range routes[0].Lanes() {
			reads = append(reads, outbox.LaneRead{Lane: routes[0].First + outbox.Lane(i)})
		}
		for got := 0; got < rows; {
			began := time.Now()
			n, err := session.ReadLanes(ctx, reads, dst)
			if err != nil {
				return err
			}
			took := time.Since(began)
			total += took
			ms = append(ms, took.Seconds()*1000)
			if n == 0 {
				break
			}
			got += n
			for _, row := range dst[:n] {
				reads[row.Lane-routes[0].First].After = row.Pos
			}
			read += n
		}
	}
	into["read_us"] = float64(total.Microseconds()) / float64(max(read, 1))
	into["read_p50"], into["read_p99"] = percentile(ms, 0.5), percentile(ms, 0.99)
	return nil
}

// memory runs a relay over the whole backlog in a process of its own.
func (b *backlog) memory(ctx context.Context) (sample, error) {
	s, got, err := b.r.child(ctx, largeMaker, b.place, b.load)
	if err != nil {
		return nil, err
	}
	b.taken += got
	c, err := open(ctx, largeMaker, b.place, 1)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return s, checkPending(ctx, c, b.filled-b.check.Got()-b.taken)
}
