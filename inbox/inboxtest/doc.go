// Package inboxtest is for tests: [Run] proves an [inbox.Store] against the
// rules of the inbox, and [Mem] is a store in memory that obeys them, with
// transactions that wait for each other as a database's do.
//
// Only tests import it.
package inboxtest
