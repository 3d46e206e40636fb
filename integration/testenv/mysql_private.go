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

// MySQLServer is a private MariaDB or MySQL that a test may stop and start again, at
// the same address. The methods are not for concurrent use.
type MySQLServer struct {
	URL   string // mysql://root@127.0.0.1:PORT/
	DSN   string // of a database for the test, for driver "mysql"
	name  string
	dir   string
	start string // the server in the background, and a wait until it is ready
	end   func()
}

// PrivateMySQL starts a server of the test's own, whatever URL the environment
// names: what a test does to it hits no other. It is gone when the test ends.
func PrivateMySQL(tb testing.TB) *MySQLServer {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	m, err := startMySQL(ctx, os.Getenv(EnvMySQLRoot))
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
func (m *MySQLServer) Crash(ctx context.Context) error {
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
func (m *MySQLServer) Start(ctx context.Context) error { return m.run(ctx, ": >log; "+m.start) }

func (m *MySQLServer) run(ctx context.Context, script string) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	cmd.Dir = m.dir
	err := dropPrivileges(cmd)
	if err == nil {
		err = cmd.Run()
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		return fmt.Errorf("%s at %s: %w: %s", m.name, m.URL, err, log[max(0, len(log)-500):])
	}
	return nil
}

// mysqlProgram is a server's program, with the options that only it has, and what
// makes its data, all in the shell.
type mysqlProgram struct{ name, install, run string }

func mariaDB() (*mysqlProgram, error) {
	bin, err := exec.LookPath("mariadbd")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/mariadbd"); err != nil {
			return nil, fmt.Errorf("set %s or %s, or install MariaDB (Debian: apt-get install mariadb-server)", EnvMySQL, EnvMySQLRoot)
		}
	}
	return &mysqlProgram{
		name:    "MariaDB",
		install: `TMPDIR="$PWD/tmp" mariadb-install-db --no-defaults --datadir="$PWD/data" --auth-root-authentication-method=normal --skip-test-db`,
		run:     quote(bin) + " --no-defaults --innodb-log-file-size=256M",
	}, nil
}

// mysqlBelow is MySQL itself, which needs the C library that it was unpacked with.
func mysqlBelow(root string) (*mysqlProgram, error) {
	loaders, _ := filepath.Glob(filepath.Join(root, "usr", "lib", "*", "ld-linux-*.so.?"))
	server := filepath.Join(root, "usr", "sbin", "mysqld")
	if !filepath.IsAbs(root) || len(loaders) == 0 || !executable(filepath.Dir(server), filepath.Base(server)) {
		return nil, fmt.Errorf("%s has %q: name an absolute path below which Debian's mysql-server-core and all that it depends on are unpacked", EnvMySQLRoot, root)
	}
	loader := loaders[0]
	bin := fmt.Sprintf("%s --library-path %s %s --no-defaults --basedir=%s --secure-file-priv=NULL",
		quote(loader), quote(filepath.Dir(loader)), quote(server), quote(filepath.Join(root, "usr")))
	// Who connects from 127.0.0.1 is not root@localhost where names are not looked up.
	const user = `FLUSH PRIVILEGES; CREATE USER root@127.0.0.1 IDENTIFIED WITH caching_sha2_password BY ""; GRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;`
	return &mysqlProgram{
		name:    "MySQL",
		install: "echo " + quote(user) + ` >user.sql && ` + bin + ` --datadir="$PWD/data" --tmpdir="$PWD/tmp" --initialize-insecure --init-file="$PWD/user.sql"`,
		run:     bin + " --innodb-redo-log-capacity=256M --disable-log-bin --mysqlx=OFF",
	}, nil
}

// startMySQL starts MySQL of the directory root, or where that is empty the
// MariaDB that is installed.
func startMySQL(ctx context.Context, root string) (*MySQLServer, error) {
	bin, err := mariaDB()
	if root != "" {
		bin, err = mysqlBelow(root)
	}
	if err != nil {
		return nil, err
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
		m := &MySQLServer{name: bin.name, URL: fmt.Sprintf("mysql://root@127.0.0.1:%d/", port)}
		// The socket is named relative to the data, for its path is limited. A commit
		// is in the operating system's hands: it survives a killed server. A MariaDB
		// that starts removes the temporary tables in its directory for them, those of
		// others too, which end with a segmentation fault: each has its own.
		m.start = fmt.Sprintf(`{ %s --datadir="$PWD/data" --tmpdir="$PWD/tmp" --bind-address=127.0.0.1 --port=%d --socket=s --pid-file=pid --max-connections=400 \
			--max-allowed-packet=64M --innodb-buffer-pool-size=256M --innodb-flush-log-at-trx-commit=2 --skip-name-resolve%s >>log 2>&1 & } &&
			for i in $(seq %d); do grep -q 'ready for connections' log && break; kill -0 $! || break; sleep 0.1; done; grep -q 'ready for connections' log`,
			bin.run, port, settings, startTimeout/(100*time.Millisecond))
		stop := `kill -KILL "$(cat data/pid)" 2>/dev/null; wait`
		if m.dir, m.end, err = supervise(ctx, "mkdir tmp && "+bin.install+" >log 2>&1 && "+m.start, stop, true); err == nil {
			return m, nil
		}
		tries = append(tries, err)
	}
	return nil, fmt.Errorf("start %s: %w", bin.name, errors.Join(tries...))
}
