// Package testenv gives tests the engines they need, each test a database or
// stream space of its own.
//
// A server is found in this order:
//
//  1. the URL in POSTRIDER_TEST_POSTGRES, POSTRIDER_TEST_MYSQL or
//     POSTRIDER_TEST_NATS
//  2. the usual local port, when POSTRIDER_TEST_LOCAL=1 and something listens
//  3. a private server: PostgreSQL and MariaDB from installed binaries (as an
//     unprivileged user when root), NATS embedded in the process
//     (POSTRIDER_TEST_MYSQL_ROOT names a directory below which Debian's packages of
//     MySQL and of all that it depends on are unpacked: then MySQL instead of MariaDB)
//  4. PostgreSQL by Docker Compose with compose.test.yaml, where an engine runs
//
// With none of them the test is skipped, or fails when POSTRIDER_TEST_REQUIRE
// (a comma-separated list of postgres, mysql, sqlite, nats, pgbouncer) names the
// engine.
// PgBouncer is always a private one, from its Debian package.
//
// Private servers listen on 127.0.0.1 only, do not wait for the disk, and end
// with the process that started them, however it ends. Settings in
// POSTRIDER_TEST_POSTGRES_SETTINGS ("fsync=on shared_buffers=1GB") and
// POSTRIDER_TEST_MYSQL_SETTINGS are added to those of a private PostgreSQL and a
// private MariaDB or MySQL. POSTRIDER_TEST_RECORD names a file to which each
// test binary appends one line per engine it used: suite, engine, version.
package testenv
