package contest

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// watermillSQL delivers with watermill-sql, through its public API, at the batch
// size that was fastest for it.
type watermillSQL struct {
	pool    *pgxpool.Pool
	schema  wmsql.SchemaAdapter
	offsets wmsql.OffsetsAdapter
	forward bool
}

const (
	watermillBatch = 1000
	topic          = "bench"
)

// WatermillQueue is its queue schema, rows deleted when acknowledged, read
// straight from the subscriber.
func WatermillQueue(ctx context.Context, p Place) (Contestant, error) {
	return newWatermill(ctx, p, false, queueSchema, wmsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true})
}

// WatermillOffsets is its default schema, with offsets per consumer group.
func WatermillOffsets(ctx context.Context, p Place) (Contestant, error) {
	return newWatermill(ctx, p, false, wmsql.DefaultPostgreSQLSchema{
		GeneratePayloadType: binaryPayload, SubscribeBatchSize: watermillBatch,
	}, wmsql.DefaultPostgreSQLOffsetsAdapter{})
}

// WatermillForwarder is the queue schema under Watermill's Forwarder, with the
// envelope that it needs.
func WatermillForwarder(ctx context.Context, p Place) (Contestant, error) {
	return newWatermill(ctx, p, true, queueSchema, wmsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true})
}

var queueSchema = wmsql.PostgreSQLQueueSchema{GeneratePayloadType: binaryPayload, SubscribeBatchSize: watermillBatch}

func binaryPayload(string) string { return "BYTEA" }

func newWatermill(ctx context.Context, p Place, forward bool, s wmsql.SchemaAdapter, o wmsql.OffsetsAdapter) (Contestant, error) {
	pool, err := p.Pool(ctx, Connections)
	return &watermillSQL{pool, s, o, forward}, err
}

func (c *watermillSQL) Close() { c.pool.Close() }

func (c *watermillSQL) subscriber() (*wmsql.Subscriber, error) {
	return wmsql.NewSubscriber(wmsql.BeginnerFromPgx(c.pool), wmsql.SubscriberConfig{
		PollInterval: 5 * time.Millisecond, SchemaAdapter: c.schema, OffsetsAdapter: c.offsets,
	}, watermill.NopLogger{})
}

func (c *watermillSQL) Prepare(context.Context) error {
	s, err := c.subscriber()
	if err != nil {
		return err
	}
	return errors.Join(s.SubscribeInitialize(topic), s.Close())
}

// publisher writes through an executor: a transaction.
func (c *watermillSQL) publisher(tx wmsql.ContextExecutor) (message.Publisher, error) {
	p, err := wmsql.NewPublisher(tx, wmsql.PublisherConfig{SchemaAdapter: c.schema}, watermill.NopLogger{})
	if err != nil || !c.forward {
		return p, err
	}
	return forwarder.NewPublisher(p, forwarder.PublisherConfig{ForwarderTopic: topic}), nil
}

func (c *watermillSQL) Fill(ctx context.Context, l *Load, from, to int) error {
	return inBatches(l, from, to, func(msgs []Message) error {
		return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return c.Enqueue(ctx, tx, msgs) })
	})
}

func (c *watermillSQL) Enqueue(_ context.Context, tx pgx.Tx, msgs []Message) error {
	p, err := c.publisher(wmsql.TxFromPgx(tx))
	if err != nil {
		return err
	}
	out := make([]*message.Message, 0, len(msgs))
	for _, m := range msgs {
		out = append(out, message.NewMessage(watermill.NewUUID(), m.Body))
	}
	return p.Publish(topic, out...)
}

func (c *watermillSQL) Deliver(ctx context.Context, p *Publisher) error {
	s, err := c.subscriber()
	if err != nil {
		return err
	}
	if c.forward {
		return c.deliverForwarder(ctx, s, p)
	}
	msgs, err := s.Subscribe(context.WithoutCancel(ctx), topic)
	if err != nil {
		return err
	}
	for {
		select {
		case m := <-msgs:
			p.One(m.Payload)
			m.Ack()
		case <-ctx.Done():
			return s.Close()
		}
	}
}

func (c *watermillSQL) deliverForwarder(ctx context.Context, s *wmsql.Subscriber, p *Publisher) error {
	f, err := forwarder.NewForwarder(s, counting{p}, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: topic})
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- f.Run(context.WithoutCancel(ctx)) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.Join(f.Close(), <-done)
	}
}

// counting is the publisher as Watermill sees it.
type counting struct{ p *Publisher }

func (c counting) Publish(_ string, msgs ...*message.Message) error {
	for _, m := range msgs {
		c.p.One(m.Payload)
	}
	return nil
}

func (c counting) Close() error { return nil }
