package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// consumerName is the consumer in the inbox table and on the broker.
const consumerName = "ledger"

// consumer is the other service: it reads the stream and books each order once
// in a database of its own.
type consumer struct {
	engine
	db     *app.Store
	inbox  *inbox.Inbox[sqlstore.Tx]
	broker *broker
	cons   jetstream.Consumer

	applied atomic.Int64
	// copies are messages of the stream whose id had been applied: surely
	// duplicates. Used to tell how much is undelivered, never in the verdict.
	copies atomic.Int64
}

func openConsumer(ctx context.Context, e engine, b *broker) (c *consumer, err error) {
	c = &consumer{engine: e, broker: b}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.db, err = e.open(ctx, 4); err != nil {
		return c, err
	}
	if err := c.db.Migrate(ctx); err != nil {
		return c, fmt.Errorf("create the inbox in %s: %w", e, err)
	}
	store, err := c.db.OverSQL()
	if err != nil {
		return c, err
	}
	if c.inbox, err = inbox.New[sqlstore.Tx](store, nil); err != nil {
		return c, err
	}
	// No key: an order applied twice must show as two rows.
	err = e.tables(ctx, c.db.DB, `CREATE TABLE {effects} (message TEXT NOT NULL, customer BIGINT NOT NULL, number BIGINT NOT NULL, sequence BIGINT NOT NULL)`)
	if err != nil {
		return c, err
	}
	c.cons, err = b.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:       consumerName,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       30 * time.Second,
		MaxAckPending: 10_000,
	})
	if err != nil {
		return c, fmt.Errorf("create consumer %s of stream %s: %w", consumerName, b.name, err)
	}
	return c, nil
}

func (c *consumer) close() {
	if c.db != nil {
		c.db.Close()
	}
}

// batch is how many messages the consumer applies in one transaction at most:
// those that have come anyway, so that none waits for another.
const batch = 100

// run applies messages until ctx is done; then it returns nil.
func (c *consumer) run(ctx context.Context) error {
	// A machine that is busy for a while is no reason to give up.
	msgs, err := c.cons.Messages(jetstream.PullMaxMessages(10*batch), jetstream.WithMessagesErrOnMissingHeartbeat(false))
	if err != nil {
		return fmt.Errorf("read stream %s: %w", c.broker.name, err)
	}
	defer msgs.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	came := make(chan jetstream.Msg, batch)
	go func() {
		for {
			msg, err := msgs.Next(jetstream.NextContext(ctx))
			if err != nil {
				cancel(fmt.Errorf("read stream %s: %w", c.broker.name, err))
				return
			}
			select {
			case came <- msg:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		var ms []jetstream.Msg
		select {
		case m := <-came:
			ms = append(ms, m)
		case <-ctx.Done():
		}
		for len(ms) > 0 && len(ms) < batch && len(came) > 0 {
			ms = append(ms, <-came)
		}
		if len(ms) > 0 {
			if err := c.handle(ctx, ms); err != nil && ctx.Err() == nil {
				return fmt.Errorf("apply messages in %s: %w", c.engine, err)
			}
		}
		if ctx.Err() != nil {
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}
	}
}

// handle applies messages and acknowledges them.
func (c *consumer) handle(ctx context.Context, ms []jetstream.Msg) error {
	tx, err := c.db.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var applied, copies int64
	for _, msg := range ms {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		first, err := c.apply(ctx, tx, c.broker.decode(msg.Headers(), msg.Data()).Order, meta.Sequence.Stream)
		switch {
		case err != nil:
			return err
		case first:
			applied++
		case meta.NumDelivered == 1:
			copies++
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	c.applied.Add(applied)
	c.copies.Add(copies)
	// Only now: acked before the commit, a crash in between would lose them. An
	// ack that gets lost brings its message again, which the inbox skips.
	for _, msg := range ms {
		if err := msg.Ack(); err != nil {
			return err
		}
	}
	return nil
}

// apply books the order in the transaction in which the inbox marks the
// message. It tells whether it did.
func (c *consumer) apply(ctx context.Context, tx *sql.Tx, o Order, sequence uint64) (bool, error) {
	return c.inbox.Process(ctx, tx, o.Message, consumerName, func(ctx context.Context) error {
		_, err := tx.ExecContext(ctx, c.text(`INSERT INTO {effects} VALUES (?, ?, ?, ?)`), o.Message, o.Customer, o.Number, int64(sequence))
		return err
	})
}

// idle tells whether every message of the stream has been applied and acked.
func (c *consumer) idle(ctx context.Context) (bool, error) {
	info, err := c.cons.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("look at consumer %s of stream %s: %w", consumerName, c.broker.name, err)
	}
	return info.NumPending == 0 && info.NumAckPending == 0, nil
}

// record reads what the consumer's database says at the end.
func (c *consumer) record(ctx context.Context, r *Recorded) (err error) {
	r.Effects, err = readOrders(ctx, c.db.DB, c.text(`SELECT message, customer, number FROM {effects}`))
	return err
}
