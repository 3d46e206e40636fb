package contest

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/bench/internal/meter"
)

// Contestant is one way of delivering an outbox. It lives for one run, in a
// place of its own, unless a scenario says otherwise.
type Contestant interface {
	// Prepare makes the tables.
	Prepare(ctx context.Context) error
	// Fill commits messages of a load, in order.
	Fill(ctx context.Context, l *Load, from, to int) error
	// Deliver hands to p what is pending until ctx ends, and returns nil after a
	// clean stop.
	Deliver(ctx context.Context, p *Publisher) error
	// Close ends the connections.
	Close()
}

// Writer is implemented by contestants that can commit messages alone.
type Writer interface {
	Write(ctx context.Context, msgs []Message) error
}

// Enqueuer is implemented by contestants that write through a transaction of
// pgx.
type Enqueuer interface {
	Enqueue(ctx context.Context, tx pgx.Tx, msgs []Message) error
}

// Pending is implemented by contestants that can count what is not delivered.
type Pending interface {
	Pending(ctx context.Context) (int, error)
}

// Maker names a contestant and makes it in a place.
type Maker struct {
	Name string
	// New opens it. The place is empty.
	New func(ctx context.Context, p Place) (Contestant, error)
	// SQLite: it needs no PostgreSQL.
	SQLite bool
}

// Place is where a contestant keeps its tables: a schema of a PostgreSQL
// database, a directory, or a MySQL database.
type Place struct {
	URL    string // PostgreSQL
	Schema string
	Wire   *meter.Wire
	Dir    string        // for files
	MySQL  *mysql.Config // nil where there is none
}

// config is the connection of every contestant: the same settings, counted.
func (p Place) config() (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(p.URL)
	if err != nil {
		return nil, err
	}
	p.set(c)
	return c, nil
}

// Application is how the sessions of contestants are called on the server.
const Application = "postrider-bench"

func (p Place) set(c *pgx.ConnConfig) {
	c.DialFunc = p.Wire.Dial
	c.RuntimeParams["search_path"] = p.Schema
	c.RuntimeParams["application_name"] = Application
}

// Pool opens a pool of size connections at most.
func (p Place) Pool(ctx context.Context, size int) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(p.URL)
	if err != nil {
		return nil, err
	}
	p.set(c.ConnConfig)
	c.MaxConns = int32(size)
	return pgxpool.NewWithConfig(ctx, c)
}

// DB opens a database/sql pool of size connections at most.
func (p Place) DB(size int) (*sql.DB, error) {
	c, err := p.config()
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*c)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// Local tells whether a PostgreSQL URL names this machine.
func Local(url string) bool {
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return false
	}
	ip := net.ParseIP(c.Host)
	return strings.HasPrefix(c.Host, "/") || c.Host == "localhost" || ip != nil && ip.IsLoopback()
}

// fillBatch is how many rows one call of a Fill writes.
const fillBatch = 1000

// inBatches calls fn with the messages of a range, some at a time.
func inBatches(l *Load, from, to int, fn func(msgs []Message) error) error {
	for at := from; at < to; at += fillBatch {
		msgs := make([]Message, 0, fillBatch)
		for n := at; n < min(at+fillBatch, to); n++ {
			msgs = append(msgs, l.Message(n))
		}
		if err := fn(msgs); err != nil {
			return fmt.Errorf("fill from %d: %w", at, err)
		}
	}
	return nil
}
