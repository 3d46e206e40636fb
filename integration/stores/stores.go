// Package stores gives tests the SQL stores behind one face: sqlstore over
// database/sql, and pgxstore over a pgxpool that a *sql.DB shares for the
// tests' own statements.
package stores

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgxstore"
	"github.com/postrider/postrider/store/sqlstore"
)

// Native is the driver name that stands for pgxstore.
const Native = "pgxpool"

// conns is how many connections a native pool allows, unless its URL says so.
const conns = "20"

// pools are the native ones by their *sql.DB.
var pools sync.Map

// Open opens a database, which is closed with the test.
func Open(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	if driver != Native {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			tb.Fatalf("open: %v", err)
		}
		tb.Cleanup(func() { db.Close() })
		return db
	}
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	if q := u.Query(); !q.Has("pool_max_conns") {
		q.Set("pool_max_conns", conns)
		u.RawQuery = q.Encode()
	}
	pool, err := pgxpool.New(context.Background(), u.String())
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	db := stdlib.OpenDBFromPool(pool)
	pools.Store(db, pool)
	tb.Cleanup(func() { Close(db) })
	return db
}

// Close closes what Open opened, earlier than at the end of the test.
func Close(db *sql.DB) {
	db.Close()
	if pool, ok := pools.LoadAndDelete(db); ok {
		pool.(*pgxpool.Pool).Close()
	}
}

// Store is what both stores do.
type Store interface {
	outbox.Store
	outbox.LaneStore
	outbox.LaneSessioner
	outbox.Concurrent
	outbox.Releaser
	outbox.ServerClock
	outbox.Router
	outbox.AgeStore
	outbox.DeadLetters
	outbox.Parker
	outbox.Confirmer
	outbox.LaneParker
	outbox.Inspector
	Migrate(ctx context.Context) error
	Check(ctx context.Context) error
	CheckRelay(ctx context.Context) error
}

// New returns a store on db: a pgxstore where db is native.
func New(db *sql.DB, d *sqlstore.Dialect, opts *sqlstore.Options) (Store, error) {
	pool, ok := pools.Load(db)
	if !ok {
		return sqlstore.New(db, d, opts)
	}
	var o pgxstore.Options
	if opts != nil {
		if opts.RelayDB != nil {
			return nil, fmt.Errorf("%s has no pool for the relay", Native)
		}
		o = pgxstore.Options{Schema: opts.Schema, Prefix: opts.Prefix, Routes: opts.Routes, MaxBytes: opts.MaxBytes}
	}
	return pgxstore.New(pool.(*pgxpool.Pool), &o)
}

// Tx is a transaction that a store can enlist in.
type Tx interface {
	Exec(ctx context.Context, text string, args ...any) error
	QueryRow(ctx context.Context, text string, args ...any) Row
	Enlist(ctx context.Context, s Store, recs ...outbox.Record) error
	Commit() error
	Rollback() error
}

// Row is the one row of a query.
type Row interface{ Scan(dst ...any) error }

// Begin begins a transaction on db, of the library that its stores are made for.
func Begin(ctx context.Context, db *sql.DB) (Tx, error) {
	if pool, ok := pools.Load(db); ok {
		tx, err := pool.(*pgxpool.Pool).Begin(ctx)
		return pgxTx{tx}, err
	}
	tx, err := db.BeginTx(ctx, nil)
	return sqlTx{tx}, err
}

// Enlist commits the records in a transaction of their own.
func Enlist(ctx context.Context, db *sql.DB, s Store, recs ...outbox.Record) error {
	tx, err := Begin(ctx, db)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := tx.Enlist(ctx, s, recs...); err != nil {
		return err
	}
	return tx.Commit()
}

type sqlTx struct{ *sql.Tx }

func (t sqlTx) Exec(ctx context.Context, text string, args ...any) error {
	_, err := t.ExecContext(ctx, text, args...)
	return err
}

func (t sqlTx) QueryRow(ctx context.Context, text string, args ...any) Row {
	return t.QueryRowContext(ctx, text, args...)
}

func (t sqlTx) Enlist(ctx context.Context, s Store, recs ...outbox.Record) error {
	return s.(outbox.Enlister[sqlstore.Tx]).Enlist(ctx, t.Tx, recs...)
}

type pgxTx struct{ pgx.Tx }

func (t pgxTx) Exec(ctx context.Context, text string, args ...any) error {
	_, err := t.Tx.Exec(ctx, text, args...)
	return err
}

func (t pgxTx) QueryRow(ctx context.Context, text string, args ...any) Row {
	return t.Tx.QueryRow(ctx, text, args...)
}

func (t pgxTx) Enlist(ctx context.Context, s Store, recs ...outbox.Record) error {
	return s.(outbox.Enlister[pgx.Tx]).Enlist(ctx, t.Tx, recs...)
}

func (t pgxTx) Commit() error { return t.Tx.Commit(context.Background()) }

func (t pgxTx) Rollback() error { return t.Tx.Rollback(context.Background()) }
