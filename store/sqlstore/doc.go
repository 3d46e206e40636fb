// Package sqlstore keeps the outbox and the inbox in a relational database over
// database/sql. It imports no driver: open the *sql.DB with one of your choice
// and name the [Dialect] it speaks.
//
//	db, err := sql.Open("pgx", url)
//	store, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
//	err = store.Migrate(ctx) // or apply the output of Script yourself
//
// # Writing
//
// [Store.Enlist] writes through your own transaction, a [Tx]: commit publishes,
// rollback leaves nothing. Take the lock that serialises an aggregate, usually
// by updating its row, before you call it, or call it as the last statement
// before the commit: the order of a key's messages is the order of their
// inserts, and only a lock held to the commit makes that the order of the
// commits as well. Optimistic version checks do as well, as the loser rolls
// back.
//
// READ COMMITTED is what Enlist and the inbox are made for. They also work at
// higher isolation levels, where the engine may end the transaction with a
// serialization failure if the same id is written concurrently.
//
// # What belongs to whom
//
// The pools stay the caller's and are never closed. A Store is safe for
// concurrent use; records it returns are the caller's. Every method takes
// connections from the pool for the time of the call, except
// [Store.LaneSession], which pins one until it is closed: a relay holds four.
// Statements inside a caller's transaction use that transaction alone, with two
// exceptions: the first time a route's name is met, the routes are read on
// another connection, which [Store.Migrate] and [Store.Check] do beforehand; and
// where PostgreSQL says that a right is missing, and not which one, that is asked
// on another connection, if one is free within three seconds.
//
// docs/operations.md lists the rights that a database role needs to publish, to
// consume and to relay. [Store.CheckRelay] tells, before a relay starts, which of
// its own are missing: the relay itself takes that for an outage and tries on.
//
// # Relays
//
// Lane statements run at READ COMMITTED, reads outside of any transaction.
// Leases are judged by the database's clock alone. Statements of a relay's
// session rely on settings of their connection (see [Store.LaneSession]) and so
// want a direct or session-pooled connection, not a transaction pooler.
//
// # SQLite
//
// SQLite 3.35 or later, whose JSON functions are built in from 3.38 on, before it
// with mattn/go-sqlite3's build tag sqlite_json.
//
// Use a file in WAL mode (Migrate switches it on) and a DSN that begins
// transactions IMMEDIATE and waits for the write lock, for modernc.org/sqlite:
//
//	file:app.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate
//
// Writes of the store itself wait for that lock as long as their context lasts:
// give them a deadline, and never call them while the same goroutine holds a
// write transaction. A relay needs a pool of five connections, or one of its
// own in Options.RelayDB. With ":memory:" every connection of a pool has a
// database of its own, and most of them no tables: use a file, in tests as well.
//
// With &_pragma=mmap_size(268435456), a limit in bytes, SQLite reads the file
// through mapped memory, which spares a relay about a tenth of its CPU time.
// An I/O error there ends the process instead of the call, and so does a file
// that something other than SQLite truncates: leave it out on network drives.
//
// # MySQL and MariaDB
//
// MySQL 8.0.19 and MariaDB 10.6 or later, with any driver; for
// github.com/go-sql-driver/mysql:
//
//	user:password@tcp(host:3306)/database?interpolateParams=true
//
// without which each statement takes a round trip more. Its parameters parseTime,
// loc and clientFoundRows change nothing. Tested on MariaDB 10.11 and MySQL 9.7;
// docs/engines.md tells what else it has run on, and docs/operations.md which settings
// of the server matter.
// Options.Schema is a database.
//
// # Oracle
//
// Oracle 19c or later with the character set AL32UTF8, with
// github.com/sijms/go-ora/v2:
//
//	oracle://user:password@host:1521/service?PREFETCH_ROWS=256
//
// without whose parameter a round trip fetches 25 messages or less. Written by the
// documentation and the driver's source; not run on a server yet: docs/engines.md
// says what was checked and what is particular. Options.Schema is a user, its name
// as the database has it, such as SHOP. Transactions have to be begun with BeginTx,
// as everywhere: without one the driver commits each statement.
//
// # SQL Server
//
// SQL Server 2019 or later, or Azure SQL, with the driver "sqlserver" of
// github.com/microsoft/go-mssqldb, in a database that has READ_COMMITTED_SNAPSHOT ON:
//
//	sqlserver://user:password@host:1433?database=app
//
// Written by the documentation and the driver's source; not run on a server yet:
// docs/engines.md says what was checked and what is particular. Options.Schema
// defaults to the one of the user.
//
// # Time
//
// Instants are stored as microseconds since 1970 UTC in integer columns, so
// that no session, driver or server time zone touches them.
package sqlstore
