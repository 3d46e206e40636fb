// Package sqlite335 runs the suites on the oldest SQLite that will do, 3.35, which
// mattn/go-sqlite3 v1.14.7 has in it. It is a module of its own, outside the workspace:
// there is one version of that driver in each. It needs cgo, and a build with JSON:
//
//	GOWORK=off go test -tags sqlite_json .
//
// Without the tag it holds the error that a program built so gets. `make test` does both.
package sqlite335
