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
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport/natstransport"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestReadme(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("shop.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range []string{"write", "setup", "consume", "receive"} {
		_, code, _ := strings.Cut(string(source), "// readme:"+mark+"\n")
		code, _, _ = strings.Cut(code, "// readme:end\n")
		code = strings.TrimRight(code, "\n")
		if code == "" || !strings.Contains(string(text), "```go\n"+code+"\n```") {
			t.Errorf("README.md does not hold the %s code of shop.go:\n%s", mark, code)
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
	box, err := start(relaying, db, js)
	if err != nil {
		t.Fatal(err)
	}
	if err := place(ctx, db, box, OrderPlaced{Order: "1", Customer: "ada"}); err != nil {
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
	if err := place(ctx, db, box, OrderPlaced{Order: "2", Customer: "ada"}); err != nil {
		t.Fatal(err)
	}
	for _, err = stream.GetMsg(ctx, 2); err != nil; _, err = stream.GetMsg(ctx, 2) {
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
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
		if err := consume(ctx, db, in, box.Types(), m); err != nil {
			t.Fatal(err)
		}
	}
	var bill string
	if err := db.QueryRowContext(ctx, `SELECT string_agg(order_id, ',') FROM bills`).Scan(&bill); err != nil || bill != "1" {
		t.Fatalf("after the message and its repeat there are bills for %q, %v; want 1", bill, err)
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	receiving, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- receive(receiving, db, in, box.Types(), js, consumer) }()
	for info, err := consumer.Info(ctx); err != nil || info.AckFloor.Stream < 2; info, err = consumer.Info(ctx) {
		if ctx.Err() != nil {
			t.Fatalf("the receiver has not acknowledged two messages: %+v, %v", info, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	end()
	if err := <-done; err != nil {
		t.Errorf("the receiver ends with %v", err)
	}
	if err := db.QueryRowContext(ctx, `SELECT string_agg(order_id, ',' ORDER BY order_id) FROM bills`).Scan(&bill); err != nil || bill != "1,2" {
		t.Errorf("after the receiver there are bills for %q, %v; want 1 and 2", bill, err)
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
