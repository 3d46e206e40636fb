package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/integration/testenv"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "postrider-bench-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "bench")
	code := 1
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = testenv.Run(m)
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func build() error {
	root, err := testenv.Root()
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-o", binary, "./bench")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./bench: %w\n%s", err, out)
	}
	return nil
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	// An interrupt lets it drop what it made.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Every scenario, with a two-hundredth of the messages: each arrives once and in
// order, whoever delivers it, nothing stays in the database, and a page comes of
// it.
func TestEveryScenario(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	maria, mysqlURL := mysqlDatabase(t)
	report := filepath.Join(t.TempDir(), "report.json")
	out, err := run(t, "-db", url, "-mysql", mysqlURL, "-scenario", "all", "-repeat", "1", "-scale", "0.005", "-out", report)
	if err != nil {
		t.Fatalf("bench: %v\n%s", err, out)
	}
	listed, err := run(t, "-list")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Scenarios []struct {
			Name, Skipped string
			Variants      []struct {
				Name   string
				Series []struct {
					Contestant string
					Samples    []map[string]float64
				}
			}
		}
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if want := strings.Count(listed, "\n"); len(r.Scenarios) != want {
		t.Errorf("the report has %d scenarios, -list %d", len(r.Scenarios), want)
	}
	for _, s := range r.Scenarios {
		if s.Skipped != "" || len(s.Variants) == 0 {
			t.Errorf("scenario %s was not run: %q", s.Name, s.Skipped)
		}
		for _, v := range s.Variants {
			for _, x := range v.Series {
				if len(x.Samples) == 0 {
					t.Errorf("%s, %s, %s: no figures", s.Name, v.Name, x.Contestant)
				}
			}
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var left int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public')`).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("the bench left %d schemas behind", left)
	}
	if err := maria.QueryRowContext(t.Context(), `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()`).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("the bench left %d tables of MariaDB behind", left)
	}
	page := filepath.Join(t.TempDir(), "performance.md")
	if out, err := run(t, "-page", page, "-out", report); err != nil {
		t.Fatalf("page: %v\n%s", err, out)
	}
	for _, name := range []string{"performance.md", "performance/drain.svg", "performance/report.json"} {
		if b, err := os.ReadFile(filepath.Join(filepath.Dir(page), name)); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// mysqlDatabase is an empty database and its URL.
func mysqlDatabase(t *testing.T) (*sql.DB, string) {
	t.Helper()
	dsn := testenv.MySQL(t)
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	u := url.URL{Scheme: "mysql", User: url.UserPassword(c.User, c.Passwd), Host: c.Addr, Path: "/" + c.DBName}
	return db, u.String()
}

// A database that somebody uses is left alone.
func TestForeignDatabase(t *testing.T) {
	t.Parallel()
	for _, made := range []string{`CREATE TABLE orders (id int)`, `CREATE SCHEMA shop`, `CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'`} {
		url := testenv.Postgres(t)
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), made)
		conn.Close(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out, err := run(t, "-db", url, "-scenario", "drain", "-scale", "0.005", "-repeat", "1", "-out", filepath.Join(t.TempDir(), "r.json"))
		if err == nil || !strings.Contains(out, "did not make") {
			t.Errorf("after %s: %v, want a refusal\n%s", made, err, out)
		}
	}
}

// The same on MariaDB, and a run without a server says so.
func TestMySQLServer(t *testing.T) {
	t.Parallel()
	postgres := testenv.Postgres(t)
	db, mysqlURL := mysqlDatabase(t)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE orders (id INT)`); err != nil {
		t.Fatal(err)
	}
	for server, want := range map[string]string{mysqlURL: "did not make", "": "mariadb: skipped"} {
		out, err := run(t, "-db", postgres, "-mysql", server, "-scenario", "mariadb", "-scale", "0.005", "-repeat", "1", "-out", filepath.Join(t.TempDir(), "r.json"))
		if (err == nil) != (server == "") || !strings.Contains(out, want) {
			t.Errorf("-mysql %q: %v, want %q\n%s", server, err, want, out)
		}
	}
	if _, err := db.ExecContext(t.Context(), `SELECT * FROM orders`); err != nil {
		t.Error(err)
	}
}
