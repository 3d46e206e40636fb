package testenv

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

func TestMain(m *testing.M) {
	if os.Getenv("TESTENV_CHILD") == "1" {
		s, err := StartPostgres(context.Background())
		if err != nil {
			os.Stdout.WriteString("error " + err.Error() + "\n")
		} else {
			os.Stdout.WriteString(s.URL + "\n")
		}
		select {}
	}
	Main(m)
}

func TestPostgresDatabasesAreApart(t *testing.T) {
	t.Parallel()
	a, b := Postgres(t), Postgres(t)
	if a == b {
		t.Fatalf("two tests would share %s", a)
	}
	for _, dsn := range []string{a, b} {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(`CREATE TABLE t (x int)`); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPostgresIsDropped(t *testing.T) {
	t.Parallel()
	var dsn string
	t.Run("use", func(t *testing.T) { dsn = Postgres(t) })
	if dsn == "" {
		t.SkipNow()
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Ping(); err == nil || !strings.Contains(err.Error(), "3D000") {
		t.Fatalf("database is still there after its test: %v", err)
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", SQLite(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var mode string
	if err := db.QueryRow(`PRAGMA journal_mode`).Scan(&mode); err != nil || mode != "wal" {
		t.Fatalf("journal_mode %q, %v; want wal", mode, err)
	}
}

func TestNATS(t *testing.T) {
	t.Parallel()
	nc, err := natsgo.Connect(NATS(t))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

// A killed test binary cannot clean up; its server has to end all the same.
func TestPrivatePostgresEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	if _, err := postgresBinaries(t.Context()); err != nil {
		missing(t, EnginePostgres, err)
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "TESTENV_CHILD=1", EnvPostgres+"=", EnvLocal+"=")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1024)
	n, _ := out.Read(buf)
	u, err := url.Parse(strings.TrimSpace(string(buf[:n])))
	if err != nil || u.Host == "" {
		child.Process.Kill()
		t.Fatalf("child said %q: %v", buf[:n], err)
	}
	if !listening(t.Context(), u.Host) {
		t.Errorf("nothing listens on %s", u.Host)
	}
	child.Process.Kill()
	child.Wait()
	for deadline := time.Now().Add(20 * time.Second); listening(t.Context(), u.Host); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server on %s outlived its killed owner", u.Host)
		}
	}
}

// A directory without MySQL is told, and no MariaDB taken for it.
func TestMySQLRootWithoutMySQL(t *testing.T) {
	for _, root := range []string{t.TempDir(), "relative"} {
		t.Setenv(EnvMySQL, "")
		t.Setenv(EnvMySQLRoot, root)
		s, err := StartMySQL(t.Context())
		if err == nil {
			s.Stop()
			t.Errorf("%s: a server of version %s", root, s.Version)
		} else if !strings.Contains(err.Error(), EnvMySQLRoot) || !strings.Contains(err.Error(), root) {
			t.Errorf("%s: got %v, want an error that names it and the variable", root, err)
		}
	}
}

func TestRequired(t *testing.T) {
	t.Setenv(EnvRequire, "postgres, NATS")
	for engine, want := range map[string]bool{EnginePostgres: true, EngineNATS: true, EngineSQLite: false, "": false} {
		if got := Required(engine); got != want {
			t.Errorf("Required(%q) = %v, want %v", engine, got, want)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	if got := Redact("postgres://u:secret@h/db"); strings.Contains(got, "secret") {
		t.Error(got)
	}
}

// A start that fails or is given up leaves neither a process nor a directory.
func TestSuperviseCleansUpAfterAFailedStart(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	if _, _, err := supervise(t.Context(), "{ echo no such engine >log; false; }", "true", false); err == nil || !strings.Contains(err.Error(), "no such engine") {
		t.Errorf("the error does not show the log: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := supervise(ctx, "sleep 0.3", "touch ../stopped", false); err == nil {
		t.Error("a start that takes too long is no error")
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Name() != "stopped" {
		t.Errorf("left behind: %v, want what the stop script made alone", left)
	}
}

// A cluster comes back with what was committed, even after a crash.
func TestClusterRestarts(t *testing.T) {
	t.Parallel()
	c := PrivatePostgres(t)
	db, err := sql.Open("pgx", c.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE t (x int)`); err != nil {
		t.Fatal(err)
	}
	for i, mode := range []string{"fast", "immediate"} {
		if _, err := db.Exec(`INSERT INTO t VALUES ($1)`, i); err != nil {
			t.Fatal(err)
		}
		if err := c.Stop(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
		if err := db.Ping(); err == nil {
			t.Errorf("%s: a stopped server answers", mode)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM t`).Scan(&n); err != nil || n != i+1 {
			t.Errorf("%s: %d rows, %v, want %d", mode, n, err, i+1)
		}
	}
}
