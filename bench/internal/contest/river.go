package contest

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue delivers with River: a job publishes one message. It keeps no order.
type riverQueue struct {
	pool     *pgxpool.Pool
	inserter *river.Client[pgx.Tx]
}

// riverWorkers was the fastest number of workers on two cores.
const riverWorkers = 2000

// River is River with InsertManyFastTx.
func River(ctx context.Context, p Place) (Contestant, error) {
	pool, err := p.Pool(ctx, Connections)
	if err != nil {
		return nil, err
	}
	c := &riverQueue{pool: pool}
	c.inserter, err = c.client(nil)
	return c, err
}

// publishArgs is the message as a job; JSON has no bytes, so the body is base64.
type publishArgs struct {
	Body []byte `json:"body"`
}

func (publishArgs) Kind() string { return "publish" }

type publishWorker struct {
	river.WorkerDefaults[publishArgs]
	p *Publisher
}

func (w *publishWorker) Work(_ context.Context, job *river.Job[publishArgs]) error {
	w.p.One(job.Args.Body)
	return nil
}

func (c *riverQueue) Close() { c.pool.Close() }

func (c *riverQueue) Prepare(ctx context.Context) error {
	m, err := rivermigrate.New(riverpgxv5.New(c.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (c *riverQueue) client(p *Publisher) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &publishWorker{p: p})
	return river.NewClient(riverpgxv5.New(c.pool), &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: workers,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		FetchCooldown: time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
	})
}

func (c *riverQueue) Fill(ctx context.Context, l *Load, from, to int) error {
	return inBatches(l, from, to, func(msgs []Message) error {
		return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return c.Enqueue(ctx, tx, msgs) })
	})
}

func (c *riverQueue) Enqueue(ctx context.Context, tx pgx.Tx, msgs []Message) error {
	jobs := make([]river.InsertManyParams, 0, len(msgs))
	for _, m := range msgs {
		jobs = append(jobs, river.InsertManyParams{Args: publishArgs{m.Body}})
	}
	_, err := c.inserter.InsertManyFastTx(ctx, tx, jobs)
	return err
}

func (c *riverQueue) Pending(ctx context.Context) (n int, err error) {
	err = c.pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state <> 'completed'`).Scan(&n)
	return n, err
}

func (c *riverQueue) Deliver(ctx context.Context, p *Publisher) error {
	client, err := c.client(p)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return client.Stop(stop)
}
