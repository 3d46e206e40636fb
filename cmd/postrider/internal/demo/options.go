package demo

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
)

// Options are the flags of `postrider demo`. Every field's zero value means
// its default, except where it says otherwise.
type Options struct {
	// Orders is how many orders are placed, 1 to 1,000,000. With Crash it may
	// become more. Required.
	Orders int
	// Customers is how many customers place them, 1 to 100,000. Required.
	Customers int
	// Producers is how many orders are placed at once, 1 to 256. Required.
	Producers int
	// Rollback is how many of a hundred orders are rolled back on purpose, 0 to
	// 100. Zero means none.
	Rollback int
	// Relays is how many relays share the lanes, 1 to 16. Required.
	Relays int
	// Crash runs the relays as child processes and kills them one after
	// another until [kills] of them died amid a backlog.
	Crash bool
	// JSON prints the verdict as one JSON object instead of sentences.
	JSON bool
	// Keep is a directory that is missing or empty, for the databases and the
	// stream; nothing is removed at the end. Defaults to a temporary directory
	// that is.
	Keep string
	// DB is the URL of a PostgreSQL or MySQL database in which the demo makes and drops
	// schemas of its own. Defaults to SQLite files.
	DB string
	// NATS is the URL of a server with JetStream on which the demo makes and
	// deletes a stream of its own. Defaults to an embedded server.
	NATS string
	// Seed repeats the choice of customers, pauses and rollbacks. Defaults to a
	// random one.
	Seed uint64
	// RelayCommand is the program and its arguments that call [RunRelay].
	// Required with Crash.
	RelayCommand []string
	// Stdout gets the verdict, Stderr the progress. Default to those of the
	// process.
	Stdout, Stderr io.Writer
}

const (
	// relayTTL is short, so that a killed relay's lanes are taken over while
	// one watches.
	relayTTL = 2 * time.Second
	// kills is how many relays must die amid a backlog of killBacklog before a
	// run with Crash may end.
	kills       = 5
	killBacklog = 100
)

// UsageError is a flag that cannot work. Nothing was changed.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }

// ExitCode is the exit status of the program.
func (e *UsageError) ExitCode() int { return 2 }

func usage(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

func (o Options) withDefaults() Options {
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1e9) + 1
	}
	o.Stdout = cmp.Or[io.Writer](o.Stdout, os.Stdout)
	o.Stderr = cmp.Or[io.Writer](o.Stderr, os.Stderr)
	return o
}

func (o Options) validate() error {
	for _, f := range []struct {
		flag          string
		value, lo, hi int
		what          string
	}{
		{"orders", o.Orders, 1, 1_000_000, "orders to place"},
		{"customers", o.Customers, 1, 100_000, "customers"},
		{"producers", o.Producers, 1, 256, "producers at once"},
		{"rollback", o.Rollback, 0, 100, "percent of the orders"},
		{"relays", o.Relays, 1, 16, "relays"},
	} {
		if f.value < f.lo || f.value > f.hi {
			return usage("--%s is %d: use %d to %d %s", f.flag, f.value, f.lo, f.hi, f.what)
		}
	}
	if o.Crash && o.Rollback > 90 {
		return usage("--rollback is %d: with --crash use 0 to 90, or there are never %d undelivered messages to kill a relay over", o.Rollback, killBacklog)
	}
	if o.Crash && len(o.RelayCommand) == 0 {
		return usage("--crash: this program does not say how its relays are started as child processes")
	}
	d, err := app.ParseDatabase(o.DB)
	switch scheme, _, _ := strings.Cut(o.DB, "://"); scheme {
	case "postgres", "postgresql", "mysql", "mariadb":
		if err != nil { // what is wrong with it, such as no database
			return usage("--db: %w", err)
		}
	}
	if o.DB != "" && (err != nil || d.Engine != app.Postgres && d.Engine != app.MySQL) {
		return usage("--db is not the URL of a database on a server: use one such as postgres://user:password@host:5432/database or mysql://user:password@host:3306/database, or leave --db out for SQLite")
	}
	return nil
}

// checkKeep refuses a directory that cannot be used, and makes nothing.
func checkKeep(dir string) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return usage("--keep is %s, which holds %s: use a directory that is empty or does not exist", dir, entries[0].Name())
	case err != nil && !os.IsNotExist(err):
		return usage("--keep is %s: %w: use a directory that is empty or does not exist", dir, err)
	}
	return nil
}

// makeDir makes the directory of the run, and returns what removes it and all
// that has come into it.
func makeDir(keep string) (dir string, remove func() error, err error) {
	if keep == "" {
		dir, err := os.MkdirTemp("", "postrider-demo-")
		if err != nil {
			return "", nil, fmt.Errorf("make a temporary directory: %w: set TMPDIR or use --keep", err)
		}
		return dir, func() error { return os.RemoveAll(dir) }, nil
	}
	_, err = os.Stat(keep)
	had := err == nil
	err = os.MkdirAll(keep, 0o700)
	if err == nil {
		// The server would merely not start in a directory that it cannot write.
		err = os.Mkdir(filepath.Join(keep, "jetstream"), 0o700)
	}
	if err != nil {
		return "", nil, usage("--keep is %s: %w: use a directory that can be written", keep, err)
	}
	return keep, func() error {
		if !had {
			return os.RemoveAll(keep)
		}
		entries, err := os.ReadDir(keep)
		for _, e := range entries {
			err = errors.Join(err, os.RemoveAll(filepath.Join(keep, e.Name())))
		}
		return err
	}, nil
}
