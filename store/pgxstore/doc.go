// Package pgxstore keeps the outbox and the inbox in PostgreSQL over pgx,
// without database/sql in between.
//
//	pool, err := pgxpool.New(ctx, url)
//	store, err := pgxstore.New(pool, nil)
//	err = store.Migrate(ctx) // or apply the output of Script yourself
//
// The tables, and what every call means, are those of package sqlstore: both
// stores can work on the same tables at the same time, in one process or in
// several.
//
// # Writing
//
// [Store.Enlist] writes through your own pgx.Tx: commit publishes, rollback
// leaves nothing. Take the lock that serialises an aggregate, usually by
// updating its row, before you call it, or call it as the last statement before
// the commit: the order of a key's messages is the order of their inserts, and
// only a lock held to the commit makes that the order of the commits as well.
// Optimistic version checks do as well, as the loser rolls back.
//
// READ COMMITTED is what Enlist and the inbox are made for. They also work at
// higher isolation levels, where PostgreSQL may end the transaction with a
// serialization failure if the same id is written concurrently.
//
// # What belongs to whom
//
// The pool stays the caller's and is never closed. A Store is safe for
// concurrent use; records it returns are the caller's. Every method takes
// connections from the pool for the time of the call, except
// [Store.LaneSession], which pins one until it is closed: a relay holds four,
// so it needs a pool of five. The default of pgxpool is four, or the number of
// processors: say pool_max_conns=8 in the URL. Statements inside a caller's
// transaction use that transaction alone, with one exception: the first time a
// route's name is met, the routes are read on another connection.
// [Store.Migrate] and [Store.Check] do that beforehand.
//
// docs/operations.md lists the rights that a database role needs to publish, to
// consume and to relay.
//
// # Time
//
// Instants are stored as microseconds since 1970 UTC in integer columns, so
// that no session or server time zone touches them.
package pgxstore
