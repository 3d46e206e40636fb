package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"
)

// Engine names, as POSTRIDER_TEST_REQUIRE and the record use them.
const (
	EnginePostgres = "postgres"
	EngineNATS     = "nats"
	EngineSQLite   = "sqlite"
)

// Env names of the environment variables that the package reads.
const (
	EnvPostgres = "POSTRIDER_TEST_POSTGRES"
	EnvNATS     = "POSTRIDER_TEST_NATS"
	EnvLocal    = "POSTRIDER_TEST_LOCAL"
	EnvRequire  = "POSTRIDER_TEST_REQUIRE"
	EnvRecord   = "POSTRIDER_TEST_RECORD"
	EnvSettings = "POSTRIDER_TEST_POSTGRES_SETTINGS"
)

const startTimeout = 2 * time.Minute

// shared is a server that the tests of one process have in common.
type shared struct {
	mu     sync.Mutex
	server *Server
	err    error
	admin  *sql.DB // of an engine that has databases
}

var postgres, nats shared

func (s *shared) get(start func(context.Context) (*Server, error)) (*Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil && s.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		s.server, s.err = start(ctx)
	}
	return s.server, s.err
}

// Postgres returns the URL of a new, empty database, dropped when the test
// ends. The role in the URL owns it.
func Postgres(tb testing.TB) string {
	tb.Helper()
	s, err := postgres.get(StartPostgres)
	if err != nil {
		missing(tb, EnginePostgres, err)
	}
	admin, err := postgres.adminDB("pgx", s.URL)
	if err != nil {
		tb.Fatalf("open %s: %v", Redact(s.URL), err)
	}
	name := "postrider_test_" + strings.ToLower(rand.Text())
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if _, err := admin.ExecContext(ctx, `CREATE DATABASE `+name+` TEMPLATE template0`+copied(s.Version)); err != nil {
		tb.Fatalf("create database on %s: %v", Redact(s.URL), err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if _, err := admin.ExecContext(ctx, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`); err != nil {
			tb.Errorf("drop database %s on %s: %v", name, Redact(s.URL), err)
		}
	})
	record(tb, EnginePostgres, s.Version)
	u, err := url.Parse(s.URL)
	if err != nil {
		tb.Fatalf("parse %s: %v", Redact(s.URL), err)
	}
	u.Path = "/" + name
	return u.String()
}

// copied makes CREATE DATABASE copy files, as it always did before PostgreSQL 15:
// beside other load, writing them through the WAL took ten times as long.
func copied(version string) string {
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 15 {
		return ""
	}
	return ` STRATEGY FILE_COPY`
}

func (s *shared) adminDB(driver, dsn string) (*sql.DB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin == nil {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(2)
		s.admin = db
	}
	return s.admin, nil
}

// NATS returns the URL of a server with JetStream. The server is shared: a
// test takes stream and subject names of its own, from [Name].
func NATS(tb testing.TB) string {
	tb.Helper()
	s, err := nats.get(StartNATS)
	if err != nil {
		missing(tb, EngineNATS, err)
	}
	record(tb, EngineNATS, s.Version)
	return s.URL
}

// Name returns a name that no other test uses, of lower-case letters and
// digits: for streams, subjects, schemas and prefixes.
func Name(prefix string) string {
	return prefix + strings.ToLower(rand.Text())[:12]
}

// SQLite returns the DSN of a new database file for driver "sqlite", in WAL
// mode, deleted when the test ends.
func SQLite(tb testing.TB) string {
	tb.Helper()
	v, err := sqliteVersion()
	if err != nil {
		missing(tb, EngineSQLite, err)
	}
	record(tb, EngineSQLite, v)
	path := (&url.URL{Path: filepath.Join(tb.TempDir(), "outbox.db")}).EscapedPath()
	return "file:" + path + "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_txlock=immediate"
}

var sqliteVersion = sync.OnceValues(func() (v string, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRow(`SELECT sqlite_version()`).Scan(&v)
	return v, err
})

// Required reports whether POSTRIDER_TEST_REQUIRE names the engine.
func Required(engine string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(EnvRequire), ","), func(s string) bool {
		return strings.EqualFold(strings.TrimSpace(s), engine)
	})
}

func missing(tb testing.TB, engine string, err error) {
	tb.Helper()
	if Required(engine) {
		tb.Fatalf("%s is required by %s, but there is none: %v", engine, EnvRequire, err)
	}
	tb.Skipf("no %s: %v", engine, err)
}

// Program is the path of a program that the machine may lack.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(tb, name, err)
	}
	return path
}

var recorded sync.Map

func record(tb testing.TB, engine, version string) {
	path := os.Getenv(EnvRecord)
	if path == "" {
		return
	}
	if _, known := recorded.LoadOrStore(engine, true); known {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s %s %s\n", suite(), engine, version)
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		tb.Fatalf("record in %s: %v", path, err)
	}
}

func suite() string {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return filepath.Base(os.Args[0])
	}
	return strings.TrimSuffix(strings.TrimPrefix(bi.Path, "github.com/postrider/postrider/"), ".test")
}

// Main is the TestMain of a package: [Run] and the end of the process.
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run runs the tests of a package and stops the servers that they started. It
// returns the exit status: not 0 too when a goroutine of the tests is still
// running.
func Run(m *testing.M) int {
	code := m.Run()
	Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines outlived the tests:", err)
			code = 1
		}
	}
	return code
}

// Stop ends the servers that this process started. Later calls of the package
// start them afresh.
func Stop() {
	for _, s := range [...]*shared{&postgres, &mysqlServer, &oracleServer, &sqlServer, &nats} {
		s.mu.Lock()
		if s.admin != nil {
			s.admin.Close()
		}
		if s.server != nil {
			s.server.Stop()
		}
		s.server, s.err, s.admin = nil, nil, nil
		s.mu.Unlock()
	}
}
