// Package inbox is the receiving side: one effect per message.
//
// Brokers and outboxes deliver at least once. A consumer that writes to a
// database makes that one effect by reserving the message in the transaction
// of its own writes:
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	processed, err := in.Process(ctx, tx, msg.ID, "billing", func(ctx context.Context) error {
//		_, err := tx.ExecContext(ctx, "UPDATE ...")
//		return err
//	})
//	if err != nil {
//		tx.Rollback() // frees the message
//		return err    // negative acknowledgement: the broker delivers again
//	}
//	if err := tx.Commit(); err != nil {
//		return err
//	}
//	msg.Ack() // a duplicate (processed == false) too
//
// msg is what the transport's Parse reads from the headers, such as
// natstransport.Parse; outbox.Decode turns the body into a value. Acknowledge
// after the commit only, and acknowledge duplicates: a duplicate is a success.
// Stop taking new messages before the database goes away.
//
// # Order
//
// The broker holds the messages of a key in order. A consumer keeps it if it
// handles a key's messages one at a time, and takes none of them while an
// earlier one waits to be delivered again. On one JetStream consumer
// MaxAckPending 1 does that, for all keys together.
//
// # Concurrency and isolation
//
// The reservation is a unique insert. A concurrent duplicate waits for the
// other transaction's end and then sees the truth: committed, it skips; rolled
// back, it runs. Use READ COMMITTED (the default of PostgreSQL) or SQLite's
// BEGIN IMMEDIATE; on MySQL, and on MariaDB before 11.6.2, REPEATABLE READ, their
// default, does as well. At REPEATABLE READ and SERIALIZABLE of PostgreSQL, and, in a
// transaction that has read before, at MariaDB's with innodb_snapshot_isolation, on from
// 11.6.2, the effect is made once too, but the duplicate that waited gets a
// serialization error instead of a skip (40001, 1020): roll back and let the broker
// deliver it again.
//
// Return every error of the database from the handler. MySQL and MariaDB end the
// whole transaction at a deadlock and take what follows as transactions of their own:
// a handler that goes on and returns nil has lost its effect and the reservation, and
// the commit says nothing of it, so the message is acknowledged.
//
// The wait has no limit of its own: bound ctx, or set the database's lock
// timeout. Two messages reserved in one transaction, in another order than
// another transaction does, can deadlock as any two row locks can.
//
// SQLite has one writer: a transaction holds the write lock while its handler
// runs. Keep handlers short, and do slow work before Process.
//
// A handler whose effect lies outside of the database takes a [Claim] instead: a
// lease that survives no longer than its holder, and never more than one at a
// time. It makes duplicates rare, not impossible.
//
// # How long to remember
//
// A record is kept for Options.Retention. It must outlast the longest
// redelivery: the broker's retries, the outbox's backoff, and dead letters that
// an operator replays. A message that comes back later is processed again.
// Expiry is judged by the consumers' clocks; keep the retention far above their
// skew.
package inbox
