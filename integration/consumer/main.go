// Command consumer is a user of the modules, outside of the workspace: one
// store, one broker, and of the modules only the packages that this takes. It
// brings no database driver, so that the list of modules is what the outbox
// itself costs; a real program imports its own.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/natstransport"
)

type orderPlaced struct {
	Order int64 `json:"order"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("NATS_URL")); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, databaseURL, natsURL string) error {
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	nc, err := nats.Connect(natsURL, natstransport.ConnectOptions()...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	broker, err := natstransport.New(js, nil)
	if err != nil {
		return err
	}
	if err := broker.Check(ctx); err != nil {
		return err
	}
	r, err := relay.New(store, map[string]transport.Transport{"default": broker}, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	if err := placeOrder(ctx, db, store, 1); err != nil {
		cancel()
		return errors.Join(err, <-done)
	}
	r.Wake() // until interrupted
	return <-done
}

// placeOrder writes a business row and its message in one transaction.
func placeOrder(ctx context.Context, db *sql.DB, store *sqlstore.Store, order int64) error {
	types := outbox.NewTypes()
	if err := outbox.Register(types, "shop.order.placed", 1, outbox.JSON[orderPlaced]()); err != nil {
		return err
	}
	box, err := outbox.New[sqlstore.Tx](store, &outbox.Options{Types: types, Transport: "default", Source: "/shop"})
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", order); err != nil {
		return err
	}
	_, err = box.Publish(ctx, tx, outbox.Publication{
		Value:   orderPlaced{Order: order},
		Message: outbox.Message{Destination: "shop.orders", Key: []byte("customer-7")},
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}
