// Package readme holds the README's Go code true: it is the code between the
// marks in this file, compiled and run.
package readme

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/natstransport"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// readme:write
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

func deliver(ctx context.Context, db *sql.DB, js jetstream.JetStream, placed func(*outbox.Outbox[sqlstore.Tx]) error) error {
	// readme:setup
	store, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	types := outbox.NewTypes()
	if err := outbox.Register(types, "shop.order.placed", 1, outbox.JSON[OrderPlaced]()); err != nil {
		return err
	}
	box, err := outbox.New(store, &outbox.Options{Types: types, Transport: "default", Source: "/shop"})
	if err != nil {
		return err
	}
	broker, err := natstransport.New(js, &natstransport.Options{Subjects: []string{"shop.orders"}})
	if err != nil {
		return err
	}
	if err := broker.Check(ctx); err != nil { // such as: no stream takes shop.orders
		return err
	}
	r, err := relay.New(store, map[string]transport.Transport{"default": broker}, nil)
	if err != nil {
		return err
	}
	go r.Run(ctx) // as many processes as you like; r.Wake() after a commit saves it a poll
	// readme:end
	return placed(box)
}

func TestReadme(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range []string{"write", "setup", "consume"} {
		_, code, _ := strings.Cut(string(source), "// readme:"+mark+"\n")
		code, _, _ = strings.Cut(code, "// readme:end\n")
		code = strings.TrimRight(code, "\t\n")
		if mark == "setup" {
			code = strings.TrimPrefix(strings.ReplaceAll(code, "\n\t", "\n"), "\t")
		}
		if !strings.Contains(string(text), "```go\n"+code+"\n```") {
			t.Errorf("README.md does not hold the %s code of this file:\n%s", mark, code)
		}
	}
}

func TestReadmeCodeDelivers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := sql.Open("pgx", testenv.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE orders (id text PRIMARY KEY, customer text NOT NULL); CREATE TABLE bills (order_id text PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(testenv.NATS(t), natstransport.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "shop", Subjects: []string{"shop.>"}})
	if err != nil {
		t.Fatal(err)
	}
	defer js.DeleteStream(context.Background(), "shop")
	relaying, stop := context.WithCancel(ctx)
	defer stop()
	var types *outbox.Types
	err = deliver(relaying, db, js, func(box *outbox.Outbox[sqlstore.Tx]) error {
		types = box.Types()
		return place(ctx, db, box, OrderPlaced{Order: "1", Customer: "ada"})
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetMsg(ctx, 1)
	for ; err != nil && ctx.Err() == nil; m, err = stream.GetMsg(ctx, 1) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := string(m.Data); got != `{"Order":"1","Customer":"ada"}` || m.Header.Get("ce-type") != "shop.order.placed.v1" {
		t.Fatalf("the stream holds %s of type %q", got, m.Header.Get("ce-type"))
	}
	stop()
	store, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		t.Fatal(err)
	}
	in, err := inbox.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // each consumer is given the message
		consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
		if err != nil {
			t.Fatal(err)
		}
		m, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := consume(ctx, db, in, types, m); err != nil {
			t.Fatal(err)
		}
	}
	var bill string
	if err := db.QueryRowContext(ctx, `SELECT string_agg(order_id, ',') FROM bills`).Scan(&bill); err != nil || bill != "1" {
		t.Fatalf("after the message and its repeat there are bills for %q, %v; want 1", bill, err)
	}
	for { // a relay that stopped cleanly is gone at once
		o, err := store.Inspect(ctx, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Relays) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
