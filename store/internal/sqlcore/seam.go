// Package sqlcore is what the SQL stores have in common: the rules of the
// contract, the statements of each engine, and the seam to the database
// library that a store is made for.
package sqlcore

import "context"

// Row is the current row of a query. Scan takes pointers to int, int64, string,
// outbox.Lane and any, and what has a method Scan(src any) error, which gets
// nil, an int64, a string, bytes that it must copy, or a [16]byte.
type Row interface {
	Scan(dst ...any) error
}

// Querier runs statements: on a connection, or in a transaction of the user's.
type Querier interface {
	// Exec runs a statement, or without arguments several, and tells how many
	// rows the last one changed.
	Exec(ctx context.Context, text string, args ...any) (changed int64, err error)
	// Query calls scan for each row.
	Query(ctx context.Context, text string, args []any, scan func(Row) error) error
}

// Conn is a connection that was taken out of a pool. Calls come one at a time.
type Conn interface {
	Querier
	// Release gives it back. It may be called again.
	Release() error
	// Discard closes it, so that Release gives nothing back.
	Discard()
}

// Pool lends connections.
type Pool interface {
	Conn(ctx context.Context) (Conn, error)
	// Limit is how many it lends at once; 0 is no limit.
	Limit() int
}
