// Package sqlcore is what the SQL stores have in common: the rules of the
// contract, the statements of each engine, and the seam to the database
// library that a store is made for.
package sqlcore

import (
	"context"

	"github.com/postrider/postrider/outbox"
)

// Row is the current row of a query. Scan takes pointers to int, int64, string,
// outbox.Lane and any, and what has a method Scan(src any) error, which gets
// nil, an int64, a string, bytes that it must copy, or a [16]byte; where there
// is a method SetID(outbox.ID) or SetInt(int64) it may be called instead.
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

// Beginner is a Conn that begins transactions through its driver. end is to be
// called once; what Exec and Query run until then is in the transaction.
type Beginner interface {
	Begin(ctx context.Context) (end func(ctx context.Context, commit bool) error, err error)
}

// Pool lends connections.
type Pool interface {
	Conn(ctx context.Context) (Conn, error)
	// Limit is how many it lends at once; 0 is no limit.
	Limit() int
	// Transient tells that a connection is another one in each transaction, so
	// that its settings are lost: a transaction pooler stands before the server.
	Transient(ctx context.Context) (bool, error)
}

// LaneQuerier is a Querier that decodes lane rows itself.
type LaneQuerier interface {
	// QueryLanes runs ReadRanges or ReadKeys, fills dst with the rows, and notes
	// with what else it says of each.
	QueryLanes(ctx context.Context, text string, args []any, dst []outbox.LaneRow, notes []LaneNote) (n int, err error)
}

// LaneNote is what a read says of a row beside the row.
type LaneNote struct {
	Read     int // its number, from 1
	Withheld int // bytes of the body if it is too large to be read with others, else 0
}

// Pipeliner is a Querier that runs several statements in one round trip, and
// all or none of them where there is no transaction.
type Pipeliner interface {
	Pipeline(ctx context.Context, list []Statement) ([]Result, error)
}

// Statement is a statement that returns ids or nothing.
type Statement struct {
	Text string
	Args []any
}

// Result is what a statement did.
type Result struct {
	Changed int64
	IDs     []outbox.ID // the first column of its rows
}

// pipeline runs the statements, one after another if q cannot do better.
func pipeline(ctx context.Context, q Querier, list []Statement) ([]Result, error) {
	if p, ok := q.(Pipeliner); ok && len(list) > 0 {
		return p.Pipeline(ctx, list)
	}
	res := make([]Result, len(list))
	for i, st := range list {
		err := q.Query(ctx, st.Text, st.Args, func(row Row) error {
			var id idColumn
			err := row.Scan(&id)
			res[i].IDs = append(res[i].IDs, id.id)
			return err
		})
		if err != nil {
			return nil, err
		}
		res[i].Changed = int64(len(res[i].IDs))
	}
	return res, nil
}
