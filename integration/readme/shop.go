// Package readme holds the README's Go code true: it is the code between the
// marks in this file, compiled and run.
package readme

// readme:write
import (
	"context"
	"database/sql"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/natstransport"
	"github.com/postrider/postrider/transport/receiver"
)

// OrderPlaced is the message.
type OrderPlaced struct{ Order, Customer string }

func place(ctx context.Context, db *sql.DB, box *outbox.Outbox[sqlstore.Tx], o OrderPlaced) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, customer) VALUES ($1, $2)`, o.Order, o.Customer); err != nil {
		return err
	}
	if _, err := box.Publish(ctx, tx, outbox.Publication{Value: o, Message: outbox.Message{
		Destination: "shop.orders", Key: []byte(o.Customer)}}); err != nil {
		return err
	}
	return tx.Commit() // the order and its message, or neither
}

// readme:end

// readme:setup
func start(ctx context.Context, db *sql.DB, js jetstream.JetStream) (*outbox.Outbox[sqlstore.Tx], error) {
	store, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	types := outbox.NewTypes()
	if err := outbox.Register(types, "shop.order.placed", 1, outbox.JSON[OrderPlaced]()); err != nil {
		return nil, err
	}
	box, err := outbox.New(store, &outbox.Options{Types: types, Transport: "default", Source: "/shop"})
	if err != nil {
		return nil, err
	}
	broker, err := natstransport.New(js, &natstransport.Options{Subjects: []string{"shop.orders"}})
	if err != nil {
		return nil, err
	}
	if err := broker.Check(ctx); err != nil { // such as: no stream takes shop.orders
		return nil, err
	}
	r, err := relay.New(store, map[string]transport.Transport{"default": broker}, nil)
	if err != nil {
		return nil, err
	}
	go r.Run(ctx) // as many processes as you like; r.Wake() after a commit saves it a poll
	return box, nil
}

// readme:end

// readme:consume
func consume(ctx context.Context, db *sql.DB, in *inbox.Inbox[sqlstore.Tx], types *outbox.Types, m jetstream.Msg) error {
	msg, err := natstransport.Parse(m.Headers())
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := in.Process(ctx, tx, msg.ID, "billing", func(ctx context.Context) error {
		o, err := outbox.Decode[OrderPlaced](types, msg.Type, m.Data())
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO bills (order_id) VALUES ($1)`, o.Order)
		return err
	}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return m.Ack() // a repeat too
}

// readme:end

// readme:receive
func receive(ctx context.Context, db *sql.DB, in *inbox.Inbox[sqlstore.Tx], types *outbox.Types, js jetstream.JetStream, c jetstream.Consumer) error {
	bill := func(ctx context.Context, tx sqlstore.Tx, m receiver.Message) error {
		o, err := outbox.Decode[OrderPlaced](types, m.Type, m.Body)
		if err != nil {
			return receiver.Permanent(err) // to Dead at once
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO bills (order_id) VALUES ($1)`, o.Order)
		return err
	}
	r, err := receiver.New(in, sqlstore.Begin(db, nil), bill, &receiver.Options[sqlstore.Tx]{
		Consumer: "billing", Dead: natstransport.DeadSubject[sqlstore.Tx](js, "dead.billing")})
	if err != nil {
		return err
	}
	return natstransport.Receive(ctx, c, r, nil) // until ctx ends
}

// readme:end
