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
// processors: say pool_max_conns=8 in the URL, and pool_ping_timeout=3s, for a
// connection that idled on a line that has vanished must not cost a relay its lease. Statements inside a caller's
// transaction use that transaction alone, with two exceptions: the first time a
// route's name is met, the routes are read on another connection, which
// [Store.Migrate] and [Store.Check] do beforehand; and where PostgreSQL says that
// a right is missing, and not which one, that is asked on another connection, if
// one is free within three seconds.
//
// docs/operations.md lists the rights that a database role needs to publish, to
// consume and to relay. [Store.CheckRelay] tells, before a relay starts, which of
// its own are missing: the relay itself takes that for an outage and tries on.
//
// # Wake-up
//
// A relay in the producer's process is woken by its Wake. One in another
// process learns of commits from a [Notifier] beside the producers and
// [Store.Listen] beside the relay, within a millisecond or two:
//
//	notifier := store.Notifier()
//	go notifier.Run(ctx, nil)
//	work, err := outbox.NewUnitOfWork(box, pgxstore.Begin(pool, nil), &outbox.UnitOptions{Committed: notifier.Committed})
//	...
//	go store.Listen(ctx, relay.Wake, nil)
//
// Nothing is ever notified within a producer's transaction. Without both, or
// when a notification is lost, relays find messages by polling.
//
// # Poolers
//
// Behind a transaction pooler, which the store notices by itself, a session pins
// no connection: each call is a transaction with the settings in it. Statements
// then go by pgx.QueryExecModeExec, or by the simple protocol where the pool has
// it as default, so that PgBouncer needs no prepared statements. Batches have
// the mode of their connection: with [Store.Queue] the pool's default mode must
// be one that the pooler knows. Transactions are taken to be of the store's own
// pool, or to reach the server by the same road.
//
// # Time
//
// Instants are stored as microseconds since 1970 UTC in integer columns, so
// that no session or server time zone touches them.
package pgxstore
