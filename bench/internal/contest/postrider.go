package contest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport"
)

// Store is what the bench needs of a store of Postrider.
type Store interface {
	outbox.Store
	outbox.LaneStore
	outbox.LaneSessioner
	outbox.Router
	Migrate(ctx context.Context) error
}

// Writer writes records in a transaction of its own store's kind.
type Writer interface {
	// Write commits the records in one transaction.
	Write(ctx context.Context, recs ...outbox.Record) error
}

// Postrider is the product over one of its stores.
type Postrider struct {
	Store  Store
	Writer Writer
	// Options of the relay. Nil: the defaults.
	Options *relay.Options
	// Relays is how many run at once. 0: one.
	Relays int
	// Pool is for rows that are written around the store; nil on SQLite.
	Pool *pgxpool.Pool

	close  func()
	relays []*relay.Relay
}

// Route is the route of all messages.
const Route = "default"

// Record is a message of a load as Postrider takes it.
func Record(key, body []byte) outbox.Record {
	return outbox.Record{
		ID: outbox.NewID(), Transport: Route, Type: "bench.v1", CreatedAt: time.Now(),
		Message: outbox.Message{Destination: "bench.events", Key: key, Body: body, Event: outbox.Event{Source: "/bench"}},
	}
}

// Connections are the most that a contestant opens.
const Connections = 80

// SQLStore is Postrider over store/sqlstore and PostgreSQL.
func SQLStore(ctx context.Context, p Place) (Contestant, error) {
	db, err := p.DB(Connections)
	if err != nil {
		return nil, err
	}
	pool, err := p.Pool(ctx, 4)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	store, err := sqlstore.New(db, sqlstore.PostgreSQL, &sqlstore.Options{MaxBytes: 32 << 20})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Postrider{Store: store, Writer: sqlWriter{db, store}, Pool: pool, close: func() { pool.Close(); db.Close() }}, nil
}

// SQLite is Postrider over store/sqlstore and a SQLite file.
func SQLite(_ context.Context, p Place) (Contestant, error) {
	db, err := openSQLite(p)
	if err != nil {
		return nil, err
	}
	store, err := sqlstore.New(db, sqlstore.SQLite, nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Postrider{Store: store, Writer: sqlWriter{db, store}, close: func() { db.Close() }}, nil
}

func openSQLite(p Place) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(p.Dir, "bench.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	return db, nil
}

type sqlWriter struct {
	db    *sql.DB
	store *sqlstore.Store
}

func (w sqlWriter) Write(ctx context.Context, recs ...outbox.Record) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := w.store.Enlist(ctx, tx, recs...); err != nil {
		return err
	}
	return tx.Commit()
}

// Prepare implements Contestant.
func (c *Postrider) Prepare(ctx context.Context) error { return c.Store.Migrate(ctx) }

// Close implements Contestant.
func (c *Postrider) Close() { c.close() }

// Fill implements Contestant: by COPY where the engine has it.
func (c *Postrider) Fill(ctx context.Context, l *Load) error {
	l.prepare()
	if c.Pool != nil {
		return c.Copy(ctx, "outbox", l, 0, l.Messages)
	}
	return inBatches(l.Messages, fillBatch, func(from, to int) error {
		recs := make([]outbox.Record, 0, to-from)
		for n := from; n < to; n++ {
			recs = append(recs, Record(l.Key(n), l.Body(n)))
		}
		return c.Writer.Write(ctx, recs...)
	})
}

// Copy writes messages of a load straight into the table of hot rows
// ("outbox") or of deferred ones ("deferred", due in an hour) or of dead ones
// ("dead").
func (c *Postrider) Copy(ctx context.Context, table string, l *Load, from, to int) error {
	routes, err := c.Store.Routes(ctx)
	if err != nil {
		return err
	}
	if len(routes) != 1 {
		return fmt.Errorf("the store has %d routes, want one", len(routes))
	}
	columns := []string{"id", "lane", "key_hash", "ordering_key", "transport", "message_type", "destination", "body", "ce_source", "created_at"}
	now := time.Now()
	later := now.Add(time.Hour).UnixMicro()
	switch table {
	case "deferred":
		columns = append(columns, "deliver_at", "due_at")
	case "dead":
		columns = append(columns, "pos", "died_at", "reason")
	}
	n := from - 1
	next := func() ([]any, error) {
		if n++; n >= to {
			return nil, nil
		}
		id, key := outbox.NewID(), l.Key(n)
		var hash any
		if key != nil {
			hash = outbox.KeyHash(key)
		}
		row := []any{id, int32(outbox.LaneOf(routes[0], id, key)), hash, key, Route, "bench.v1", "bench.events", l.Body(n), "/bench", now.UnixMicro()}
		switch table {
		case "deferred":
			row = append(row, later, later)
		case "dead":
			row = append(row, int64(n+1), now.UnixMicro(), "refused")
		}
		return row, nil
	}
	_, err = c.Pool.CopyFrom(ctx, pgx.Identifier{"postrider_" + table}, columns, pgx.CopyFromFunc(next))
	return err
}

// Pending implements the interface Pending.
func (c *Postrider) Pending(ctx context.Context) (int, error) {
	n, err := c.Store.PendingCount(ctx, time.Now())
	return int(n), err
}

// Deliver implements Contestant.
func (c *Postrider) Deliver(ctx context.Context, p *Publisher) error {
	return c.Relay(ctx, p.Transport())
}

// Relay runs the relays over any transport.
func (c *Postrider) Relay(ctx context.Context, t transport.Transport) error {
	if err := c.MakeRelays(t); err != nil {
		return err
	}
	return c.RunRelays(ctx)
}

// MakeRelays makes the relays, so that Wake finds them.
func (c *Postrider) MakeRelays(t transport.Transport) error {
	c.relays = nil
	for range max(c.Relays, 1) {
		r, err := relay.New(c.Store, map[string]transport.Transport{Route: t}, c.Options)
		if err != nil {
			return err
		}
		c.relays = append(c.relays, r)
	}
	return nil
}

// RunRelays runs them until ctx ends.
func (c *Postrider) RunRelays(ctx context.Context) error {
	errs := make(chan error, len(c.relays))
	for _, r := range c.relays {
		go func() { errs <- r.Run(ctx) }()
	}
	var all error
	for range c.relays {
		all = errors.Join(all, <-errs)
	}
	return all
}

// Wake tells the relays of a commit, in process.
func (c *Postrider) Wake() {
	for _, r := range c.relays {
		r.Wake()
	}
}
