// Package demo runs the built program's demo and looks at what it leaves.
package demo

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/integration/testenv"
)

// binary is built once, in a directory that ends with the process: its path
// names this test run's processes and nothing else's.
var binary struct {
	once sync.Once
	dir  string
	path string
	err  error
}

func TestMain(m *testing.M) {
	defer func() { os.RemoveAll(binary.dir) }()
	code := m.Run()
	testenv.Stop()
	os.RemoveAll(binary.dir)
	os.Exit(code)
}

func program(t *testing.T) string {
	t.Helper()
	binary.once.Do(func() {
		root, err := testenv.Root()
		if err != nil {
			binary.err = err
			return
		}
		if binary.dir, binary.err = os.MkdirTemp("", "postrider-demo-test-"); binary.err != nil {
			return
		}
		binary.path = filepath.Join(binary.dir, "postrider")
		cmd := exec.Command("go", "build", "-o", binary.path, ".")
		cmd.Dir = filepath.Join(root, "cmd", "postrider")
		if out, err := cmd.CombinedOutput(); err != nil {
			binary.err = errors.New(err.Error() + ": " + string(out))
		}
	})
	if binary.err != nil {
		t.Fatalf("build the program: %v", binary.err)
	}
	return binary.path
}

// result is how a run of the program ended.
type result struct {
	status         int
	stdout, stderr string
	tmp            string // the run's own TMPDIR
}

func command(t *testing.T, tmp string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program(t), append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return cmd, &stdout, &stderr
}

func run(t *testing.T, args ...string) result {
	t.Helper()
	r := result{tmp: t.TempDir()}
	cmd, stdout, stderr := command(t, r.tmp, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run the program: %v", err)
	}
	r.status, r.stdout, r.stderr = cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	return r
}

const keys = "orders committed rolled_back delivered effects lost phantoms order_violations late_commits dead pending_left duplicates relay_kills p50_ms p99_ms msgs_per_s"

// verdict reads the last line and holds its keys against the promise.
func verdict(t *testing.T, r result) map[string]float64 {
	t.Helper()
	if r.status != 0 {
		t.Fatalf("exit status %d\nstdout %s\nstderr %s", r.status, r.stdout, r.stderr)
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	last := lines[len(lines)-1]
	v := map[string]float64{}
	if err := json.Unmarshal([]byte(last), &v); err != nil {
		t.Fatalf("the last line is %q: %v", last, err)
	}
	want := strings.Fields(keys)
	for _, k := range want {
		if _, ok := v[k]; !ok {
			t.Errorf("key %s is missing in %s", k, last)
		}
	}
	if len(v) != len(want) {
		t.Errorf("%d keys, want %d: %s", len(v), len(want), last)
	}
	return v
}

// faultless holds a verdict against what every run must show.
func faultless(t *testing.T, v map[string]float64, orders float64) {
	t.Helper()
	for _, k := range []string{"lost", "phantoms", "order_violations", "dead", "pending_left"} {
		if v[k] != 0 {
			t.Errorf("%s is %v, want 0", k, v[k])
		}
	}
	if v["orders"] < orders || v["committed"] == 0 || v["committed"]+v["rolled_back"] != v["orders"] {
		t.Errorf("%v orders, %v committed, %v rolled back: want at least %v, and the sum to fit", v["orders"], v["committed"], v["rolled_back"], orders)
	}
	if v["delivered"] != v["committed"] || v["effects"] != v["committed"] {
		t.Errorf("%v delivered, %v effects, %v committed: want them equal", v["delivered"], v["effects"], v["committed"])
	}
	if v["msgs_per_s"] <= 0 || v["p99_ms"] < v["p50_ms"] {
		t.Errorf("%v messages a second, p50 %v, p99 %v", v["msgs_per_s"], v["p50_ms"], v["p99_ms"])
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s was left in the temporary directory", e.Name())
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	r := run(t, "--orders", "200", "--json", "--seed", "7")
	v := verdict(t, r)
	faultless(t, v, 200)
	if v["orders"] != 200 || v["rolled_back"] == 0 || v["late_commits"] != 0 {
		t.Errorf("%v orders, %v rolled back, %v late commits: want 200, some, none", v["orders"], v["rolled_back"], v["late_commits"])
	}
	empty(t, r.tmp)
}

func TestPostgreSQL(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	r := run(t, "--orders", "1000", "--json", "--db", url)
	v := verdict(t, r)
	faultless(t, v, 1000)
	if v["late_commits"] == 0 {
		t.Error("no late commit in 1,000 orders")
	}
	empty(t, r.tmp)
	if s := schemas(t, url); len(s) > 0 {
		t.Errorf("schemas %q were left", s)
	}
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	dsn := testenv.MySQL(t)
	// Both in one, for schemas are databases there: nobody else makes such.
	t.Run("demo", func(t *testing.T) {
		for name, args := range map[string][]string{"calm": {"--orders", "1000"}, "crash": {"--orders", "500", "--relays", "3", "--crash"}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := run(t, append(args, "--json", "--db", testenv.MySQLURL(dsn))...)
				v := verdict(t, r)
				faultless(t, v, 500)
				if name == "calm" && v["late_commits"] == 0 {
					t.Error("no late commit in 1,000 orders")
				}
				if name == "crash" && v["relay_kills"] != 5 {
					t.Errorf("%v kills, want 5", v["relay_kills"])
				}
				empty(t, r.tmp)
			})
		}
	})
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if s := list(t, db, `SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'postrider\_demo\_%'`); len(s) > 0 {
		t.Errorf("databases %q were left", s)
	}
}

// A reader that has gone, as head does, must not keep the demo from tidying up.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	tmp := t.TempDir()
	cmd, _, _ := command(t, tmp, "--orders", "50", "--db", url)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Run()
	w.Close()
	if cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, want exit status 1: the verdict could not be printed", err)
	}
	empty(t, tmp)
	if s := schemas(t, url); len(s) > 0 {
		t.Errorf("schemas %q were left", s)
	}
}

// schemas lists the demo's schemas in a database.
func schemas(t *testing.T, url string) (names []string) {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return list(t, db, `SELECT nspname FROM pg_namespace WHERE nspname LIKE 'postrider\_demo\_%'`)
}

func list(t *testing.T, db *sql.DB, query string) (names []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		names = append(names, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestNATSServer(t *testing.T) {
	t.Parallel()
	url := testenv.NATS(t)
	before := streams(t, url)
	r := run(t, "--orders", "50", "--nats", url)
	if r.status != 0 || !strings.Contains(r.stdout, "✓ 0 out of a customer's order") {
		t.Fatalf("exit status %d\nstdout %s\nstderr %s", r.status, r.stdout, r.stderr)
	}
	empty(t, r.tmp)
	for _, s := range streams(t, url) {
		if strings.HasPrefix(s, "POSTRIDER_DEMO_") && !slices.Contains(before, s) {
			t.Errorf("stream %s was left", s)
		}
	}
}

func streams(t *testing.T, url string) (names []string) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	list := js.StreamNames(ctx)
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestCrash(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"sqlite":   {"--orders", "200", "--relays", "2"},
		"postgres": {"--orders", "500", "--relays", "3", "--db", testenv.Postgres(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, append(args, "--crash", "--json")...)
			v := verdict(t, r)
			faultless(t, v, 200)
			if v["relay_kills"] != 5 {
				t.Errorf("%v kills, want 5", v["relay_kills"])
			}
			empty(t, r.tmp)
		})
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kept")
	r := run(t, "--orders", "20", "--keep", dir)
	if r.status != 0 || !strings.Contains(r.stdout, dir) {
		t.Fatalf("exit status %d, want 0 and a word of %s\nstdout %s\nstderr %s", r.status, dir, r.stdout, r.stderr)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM diary`).Scan(&n); err != nil || n != 20 {
		t.Errorf("the kept shop has %d orders (%v), want 20", n, err)
	}
	if again := run(t, "--orders", "20", "--keep", dir); again.status != 2 || !strings.Contains(again.stderr, dir) {
		t.Errorf("a second demo in the same directory: exit status %d, %s; want 2 and the directory's name", again.status, again.stderr)
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"no orders", []string{"--orders", "0"}, []string{"--orders is 0", "1 to 1000000"}},
		{"negative producers", []string{"--producers=-1"}, []string{"--producers is -1", "1 to 256"}},
		{"no customers", []string{"--customers", "0"}, []string{"--customers is 0", "1 to 100000"}},
		{"rollback over a hundred", []string{"--rollback", "101"}, []string{"--rollback is 101", "0 to 100"}},
		{"no relays", []string{"--relays", "0"}, []string{"--relays is 0", "1 to 16"}},
		{"nothing to kill over", []string{"--crash", "--rollback", "100"}, []string{"--rollback is 100", "0 to 90"}},
		{"unknown flag", []string{"--order", "5"}, []string{"--order"}},
		{"no database URL", []string{"--db", "oracle://root:hush@127.0.0.1/x"}, []string{"--db", "postgres://", "mysql://"}},
		{"unreachable database", []string{"--db", "postgres://me:hush@127.0.0.1:1/x"}, []string{"--db", "127.0.0.1:1", "server runs"}},
		{"unreachable MySQL", []string{"--db", "mysql://me:hush@127.0.0.1:1/x"}, []string{"--db", "127.0.0.1:1", "server runs"}},
		{"no NATS URL", []string{"--nats", "http://me:hush@127.0.0.1:1"}, []string{"--nats", "nats://"}},
		{"unreachable NATS", []string{"--nats", "nats://me:hush@127.0.0.1:1"}, []string{"--nats", "127.0.0.1:1", "server runs"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := run(t, tc.args...)
			if r.status != 2 || r.stdout != "" {
				t.Errorf("exit status %d, stdout %q; want 2 and nothing\nstderr %s", r.status, r.stdout, r.stderr)
			}
			for _, s := range tc.says {
				if !strings.Contains(r.stderr, s) {
					t.Errorf("stderr %q does not say %q", r.stderr, s)
				}
			}
			if strings.Contains(r.stderr, "hush") {
				t.Errorf("stderr %q shows a password", r.stderr)
			}
			empty(t, r.tmp)
		})
	}
}

func TestDatabaseWithoutRights(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	role := testenv.Name("demo_reader_")
	if _, err := db.Exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'hush'`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Exec(`DROP ROLE ` + role) })
	r := run(t, "--db", withUser(t, url, role, "hush"))
	if r.status != 2 || !strings.Contains(r.stderr, role) || !strings.Contains(r.stderr, "GRANT CREATE ON DATABASE") {
		t.Errorf("exit status %d, %s; want 2, the user and the remedy", r.status, r.stderr)
	}
	if strings.Contains(r.stderr, "hush") {
		t.Errorf("stderr %q shows the password", r.stderr)
	}
	empty(t, r.tmp)
}

func TestNATSWithoutJetStream(t *testing.T) {
	t.Parallel()
	s, err := testenv.EmbeddedNATS(false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	r := run(t, "--nats", s.URL)
	if r.status != 2 || !strings.Contains(r.stderr, "JetStream") {
		t.Errorf("exit status %d, %s; want 2 and a word about JetStream", r.status, r.stderr)
	}
	empty(t, r.tmp)
}

// withUser puts another user into a database URL.
func withUser(t *testing.T, s, user, password string) string {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}
