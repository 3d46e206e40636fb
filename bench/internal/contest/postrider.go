package contest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgxstore"
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

// Postrider is the product over one of its stores.
type Postrider struct {
	Store Store
	// Publish commits messages in a transaction of the store's kind.
	Publish func(ctx context.Context, ps []outbox.Publication) error
	// Options of the relay. Nil: the defaults.
	Options *relay.Options
	// Relays is how many run at once. 0: one.
	Relays int
	// DB is what a store over database/sql runs on, else nil.
	DB *sql.DB
	// Pool is what a store over pgx runs on, and for rows that are written
	// around the store; nil on SQLite and MySQL.
	Pool *pgxpool.Pool

	close  func()
	relays []*relay.Relay
}

// Route is the route of all messages.
const Route = "default"

// publications are messages as users of Postrider publish them: the outbox draws
// their ids, and no store has to look whether such an id is pending already.
func publications(msgs []Message) []outbox.Publication {
	ps := make([]outbox.Publication, len(msgs))
	for i, m := range msgs {
		ps[i] = outbox.Publication{Value: m.Body, Message: outbox.Message{Destination: "bench.events", Key: m.Key}}
	}
	return ps
}

// newOutbox publishes the messages of a load through e.
func newOutbox[Tx any](e outbox.Enlister[Tx]) (*outbox.Outbox[Tx], error) {
	out, err := outbox.New(e, &outbox.Options{Transport: Route, Source: "/bench", MaxBytes: 2 * maxBody})
	if err == nil {
		err = outbox.Register(out.Types(), "bench", 1, outbox.Bytes("")) // bench.v1
	}
	return out, err
}

// Connections are the most that a contestant opens.
const Connections = 80

// maxBody is the largest body of a load.
const maxBody = 16 << 20

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
	c, err := sqlPostrider(db, sqlstore.PostgreSQL)
	if err != nil {
		pool.Close()
		return nil, errors.Join(err, db.Close())
	}
	c.Pool, c.close = pool, func() { pool.Close(); db.Close() }
	return c, nil
}

// sqlPostrider is Postrider over store/sqlstore and a database that its caller
// closes.
func sqlPostrider(db *sql.DB, d *sqlstore.Dialect) (*Postrider, error) {
	store, err := sqlstore.New(db, d, &sqlstore.Options{MaxBytes: 2 * maxBody})
	if err != nil {
		return nil, err
	}
	out, err := newOutbox(store)
	return &Postrider{Store: store, DB: db, Publish: func(ctx context.Context, ps []outbox.Publication) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := out.PublishAll(ctx, tx, ps); err != nil {
			return err
		}
		return tx.Commit()
	}}, err
}

// PGXStore is Postrider over store/pgxstore.
func PGXStore(ctx context.Context, p Place) (Contestant, error) {
	pool, err := p.Pool(ctx, Connections)
	if err != nil {
		return nil, err
	}
	c, err := pgxPostrider(pool)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return c, nil
}

func pgxPostrider(pool *pgxpool.Pool) (*Postrider, error) {
	store, err := pgxstore.New(pool, &pgxstore.Options{MaxBytes: 2 * maxBody})
	if err != nil {
		return nil, err
	}
	out, err := newOutbox(store)
	return &Postrider{Store: store, Pool: pool, close: pool.Close, Publish: func(ctx context.Context, ps []outbox.Publication) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := out.PublishAll(ctx, tx, ps)
			return err
		})
	}}, err
}

// Prepare implements Contestant.
func (c *Postrider) Prepare(ctx context.Context) error { return c.Store.Migrate(ctx) }

// Close implements Contestant.
func (c *Postrider) Close() { c.close() }

// Fill implements Contestant: by COPY where the engine has it.
func (c *Postrider) Fill(ctx context.Context, l *Load, from, to int) error {
	if c.Pool != nil {
		return c.Copy(ctx, Hot, l, from, to)
	}
	return inBatches(l, from, to, func(msgs []Message) error { return c.Write(ctx, msgs) })
}

// Write implements Writer.
func (c *Postrider) Write(ctx context.Context, msgs []Message) error {
	return c.Publish(ctx, publications(msgs))
}

// Table is where Copy writes rows.
type Table string

// The tables: of ready rows, of rows that are due in an hour, of dead letters.
const (
	Hot      Table = "outbox"
	Deferred Table = "deferred"
	Dead     Table = "dead"
)

// Copy writes messages of a load straight into a table.
func (c *Postrider) Copy(ctx context.Context, table Table, l *Load, from, to int) error {
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
	case Deferred:
		columns = append(columns, "deliver_at", "due_at")
	case Dead:
		columns = append(columns, "pos", "died_at", "reason")
	}
	n := from - 1
	next := func() ([]any, error) {
		if n++; n >= to {
			return nil, nil
		}
		id, m := outbox.NewID(), l.Message(n)
		var hash any
		if m.Key != nil {
			hash = outbox.KeyHash(m.Key)
		}
		row := []any{id, int32(outbox.LaneOf(routes[0], id, m.Key)), hash, m.Key, Route, "bench.v1", "bench.events", m.Body, "/bench", now.UnixMicro()}
		switch table {
		case Deferred:
			row = append(row, later, later)
		case Dead:
			row = append(row, int64(n+1), now.UnixMicro(), "refused")
		}
		return row, nil
	}
	_, err = c.Pool.CopyFrom(ctx, pgx.Identifier{"postrider_" + string(table)}, columns, pgx.CopyFromFunc(next))
	return err
}

// Pending implements the interface Pending. On PostgreSQL it counts the hot rows,
// those that wait for a retry included.
func (c *Postrider) Pending(ctx context.Context) (n int, err error) {
	if c.Pool != nil {
		err = c.Pool.QueryRow(ctx, `SELECT count(*) FROM postrider_outbox`).Scan(&n)
		return n, err
	}
	count, err := c.Store.PendingCount(ctx, time.Now())
	return int(count), err
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

// Notify starts a notifier and a listener, as in two processes, and returns what
// to call after a commit and how to end them. Only pgxstore has them.
func (c *Postrider) Notify(ctx context.Context) (committed func(), end func() error, err error) {
	store, ok := c.Store.(*pgxstore.Store)
	if !ok {
		return nil, nil, fmt.Errorf("%T has no notifier", c.Store)
	}
	ctx, stop := context.WithCancel(ctx)
	n, errs := store.Notifier(), make(chan error, 2)
	go func() { errs <- n.Run(ctx, nil) }()
	go func() { errs <- store.Listen(ctx, c.Wake, nil) }()
	return n.Committed, func() error {
		stop()
		return errors.Join(<-errs, <-errs)
	}, nil
}
