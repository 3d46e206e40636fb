package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// MariaDB is a private server that a test may stop and start again, at the same
// address. The methods are not for concurrent use.
type MariaDB struct {
	URL   string // mysql://root@127.0.0.1:PORT/
	DSN   string // of a database for the test, for driver "mysql"
	dir   string
	start string // the server in the background, and a wait until it is ready
	end   func()
}

// PrivateMySQL starts a MariaDB of the test's own, whatever the environment
// names: what a test does to it hits no other. It is gone when the test ends.
func PrivateMySQL(tb testing.TB) *MariaDB {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	m, err := startMariaDB(ctx)
	if err != nil {
		missing(tb, EngineMySQL, err)
	}
	tb.Cleanup(m.end)
	s, err := checkedMySQL(ctx, &Server{URL: m.URL})
	if err != nil {
		tb.Fatal(err)
	}
	record(tb, EngineMySQL, s.Version)
	c := must(mysqlConfig(m.URL))
	db, err := sql.Open("mysql", c.FormatDSN())
	if err == nil {
		defer db.Close()
		_, err = db.ExecContext(ctx, `CREATE DATABASE postrider_test`)
	}
	if err != nil {
		tb.Fatal(err)
	}
	c.DBName = "postrider_test"
	m.DSN = c.FormatDSN()
	return m
}

// Crash kills the server. What was committed survives.
func (m *MariaDB) Crash(ctx context.Context) error {
	if err := m.run(ctx, `kill -KILL "$(cat data/pid)"`); err != nil {
		return err
	}
	// Not the process: it may wait for the one that started it.
	for listening(ctx, must(mysqlConfig(m.URL)).Addr) {
		time.Sleep(10 * time.Millisecond)
	}
	return ctx.Err()
}

// Start starts a stopped server and returns when it accepts connections.
func (m *MariaDB) Start(ctx context.Context) error { return m.run(ctx, ": >log; "+m.start) }

func (m *MariaDB) run(ctx context.Context, script string) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	cmd.Dir = m.dir
	err := dropPrivileges(cmd)
	if err == nil {
		err = cmd.Run()
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		return fmt.Errorf("MariaDB at %s: %w: %s", m.URL, err, log[max(0, len(log)-500):])
	}
	return nil
}

// startMariaDB starts a server of the installed binaries.
func startMariaDB(ctx context.Context) (*MariaDB, error) {
	bin, err := exec.LookPath("mariadbd")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/mariadbd"); err != nil {
			return nil, fmt.Errorf("set %s, or install MariaDB (Debian: apt-get install mariadb-server)", EnvMySQL)
		}
	}
	more, err := moreSettings(EnvMySQLSettings)
	if err != nil {
		return nil, err
	}
	settings := ""
	for _, s := range more {
		settings += " --" + s
	}
	var tries []error
	for range 4 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		m := &MariaDB{URL: fmt.Sprintf("mysql://root@127.0.0.1:%d/", port)}
		// The socket is named relative to the data, for its path is limited. A commit
		// is in the operating system's hands: it survives a killed server. A server
		// that starts removes the temporary tables in its directory for them, those of
		// others too, which end with a segmentation fault: each has its own.
		m.start = fmt.Sprintf(`{ %s --no-defaults --datadir="$PWD/data" --tmpdir="$PWD/tmp" --bind-address=127.0.0.1 --port=%d --socket=s --pid-file=pid --max-connections=400 \
			--max-allowed-packet=64M --innodb-buffer-pool-size=256M --innodb-log-file-size=256M --innodb-flush-log-at-trx-commit=2 --skip-name-resolve%s >>log 2>&1 & } &&
			for i in $(seq %d); do grep -q 'ready for connections' log && break; kill -0 $! || break; sleep 0.1; done; grep -q 'ready for connections' log`,
			quote(bin), port, settings, startTimeout/(100*time.Millisecond))
		install := `mkdir tmp && TMPDIR="$PWD/tmp" mariadb-install-db --no-defaults --datadir="$PWD/data" --auth-root-authentication-method=normal --skip-test-db >log 2>&1 && `
		stop := `kill -KILL "$(cat data/pid)" 2>/dev/null; wait`
		if m.dir, m.end, err = supervise(ctx, install+m.start, stop, true); err == nil {
			return m, nil
		}
		tries = append(tries, err)
	}
	return nil, fmt.Errorf("start MariaDB: %w", errors.Join(tries...))
}
