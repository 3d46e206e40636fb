package cli

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "postrider-cli-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "postrider")
	code := 1
	if err := testenv.BuildPostrider(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = testenv.Run(m)
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

const limit = time.Minute

// process is a running postrider.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr buffer
	done           chan error
}

// buffer is written by the process and read by the test.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start runs the program with nothing in its environment but env.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startBy(t, exec.Command(binary, args...), env)
}

func startBy(t *testing.T, cmd *exec.Cmd, env []string) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan error, 1)}
	p.cmd.Env = append([]string{"HOME=" + t.TempDir()}, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		p.done <- p.cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s\nstdout: %s\nstderr: %s", strings.Join(cmd.Args, " "), &p.stdout, &p.stderr)
		}
	})
	return p
}

// wait returns the exit status.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case err := <-p.done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("the program did not end within %s", limit)
		return -1
	}
}

func run(t *testing.T, env []string, args ...string) (int, *process) {
	t.Helper()
	p := start(t, env, args...)
	return p.wait(t), p
}

// database is one of the engines with an outbox in it.
type database struct {
	url, driver, dsn string
	dialect          *sqlstore.Dialect
}

func postgres(t *testing.T) database {
	u := testenv.Postgres(t)
	return database{u, "pgx", u, sqlstore.PostgreSQL}
}

func sqlite(t *testing.T) database {
	dsn := testenv.SQLite(t)
	return database{dsn, "sqlite", dsn, sqlstore.SQLite}
}

func mysql(t *testing.T) database {
	dsn := testenv.MySQL(t)
	return database{testenv.MySQLURL(dsn), "mysql", dsn, sqlstore.MySQL}
}

func each(t *testing.T, f func(t *testing.T, db database)) {
	onServers(t, f)
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, sqlite(t)) })
}

func onServers(t *testing.T, f func(t *testing.T, db database)) {
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, postgres(t)) })
	t.Run("mysql", func(t *testing.T) { t.Parallel(); f(t, mysql(t)) })
}

func (d database) open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// publish enlists n messages of one key, each in a transaction of its own.
func (d database) publish(t *testing.T, subject string, n int) {
	t.Helper()
	db := d.open(t)
	st, err := sqlstore.New(db, d.dialect, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for i := range n {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = st.Enlist(ctx, tx, outbox.Record{
			ID: outbox.NewID(), Transport: "default", Type: "shop.order.placed.v1", CreatedAt: time.Now(),
			Message: outbox.Message{
				Destination: subject, ContentType: "application/json", Key: []byte("one"),
				Body: fmt.Appendf(nil, `{"n":%d}`, i), Event: outbox.Event{Source: "shop"},
			},
		})
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			tx.Rollback()
			t.Fatal(err)
		}
	}
}

// stream makes a stream of the test's own.
func stream(t *testing.T, url string) (js jetstream.JetStream, name, subject string) {
	t.Helper()
	nc, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err = jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	name = testenv.Name("cli")
	subject = name + ".orders"
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		js.DeleteStream(ctx, name)
	})
	return js, name, subject
}

type status struct {
	SchemaVersion int `json:"schema_version"`
	Routes        []struct {
		Name    string
		Pending int64
		Dead    int64
		Lanes   int
		Held    int `json:"lanes_held"`
	}
	Relays []struct{ Lanes int }
}

func statusOf(t *testing.T, db database) (s status) {
	t.Helper()
	code, p := run(t, nil, "status", "--json", "--db", db.url)
	if code != 0 {
		t.Fatalf("status ends with %d: %s", code, &p.stderr)
	}
	if err := json.Unmarshal([]byte(p.stdout.String()), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// The whole way: tables, a relay from a configuration file, messages in order
// in the stream, a clean stop, nothing left.
func TestRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db database) {
		js, name, subject := stream(t, testenv.NATS(t))
		if code, p := run(t, []string{"POSTRIDER_DB=" + db.url}, "migrate"); code != 0 || !strings.Contains(p.stdout.String(), "route default: 16 ordered lanes, 8 unordered") {
			t.Fatalf("migrate ends with %d: %s", code, &p.stdout)
		}
		const early, late = 20, 20
		db.publish(t, subject, early)
		if s := statusOf(t, db); len(s.Routes) != 1 || s.Routes[0].Pending != early || s.Routes[0].Held != 0 || len(s.Relays) != 0 {
			t.Errorf("status before the relay: %+v", s)
		}

		config := filepath.Join(t.TempDir(), "postrider.yaml")
		text := fmt.Sprintf("db: %q\nnats: %s\nstream: %s\nttl: 5s\npoll: 50ms\nbatch: 8\nlog_format: json\n", db.url, testenv.NATS(t), name)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := start(t, nil, "run", "--config", config)
		stored := func() uint64 {
			s, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return s.CachedInfo().State.Msgs
		}
		eventually(t, "what waited is delivered", func() bool { return stored() == early })
		if s := statusOf(t, db); len(s.Relays) != 1 || s.Routes[0].Held != s.Routes[0].Lanes {
			t.Errorf("status beside the relay: %+v", s)
		}
		db.publish(t, subject, late)
		eventually(t, "what came later is delivered", func() bool { return stored() == early+late })

		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := p.wait(t); code != 0 {
			t.Errorf("run ends with %d after SIGTERM, want 0", code)
		}
		if s := statusOf(t, db); s.Routes[0].Pending != 0 || s.Routes[0].Dead != 0 || s.Routes[0].Held != 0 || len(s.Relays) != 0 {
			t.Errorf("status after the relay: %+v", s)
		}
		for i := range early + late {
			m, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			msg, err := m.GetMsg(t.Context(), uint64(i+1))
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(`{"n":%d}`, i%early); string(msg.Data) != want {
				t.Fatalf("message %d is %s, want %s", i, msg.Data, want)
			}
		}
		for _, line := range []string{`"msg":"relay started"`, `"msg":"lanes held"`, `"msg":"relay stopped cleanly"`} {
			if !strings.Contains(p.stderr.String(), line) {
				t.Errorf("the log has no %s", line)
			}
		}
	})
}

// What schema prints makes the tables that status finds.
func TestScript(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db database) {
		engine, several := map[string]string{"pgx": "postgres", "mysql": "mysql", "sqlite": "sqlite"}[db.driver], db
		switch db.driver { // a driver takes one statement at a time
		case "pgx":
			several.dsn += "&default_query_exec_mode=simple_protocol"
		case "mysql":
			several.dsn += "?multiStatements=true"
		}
		code, p := run(t, nil, "schema", "--engine", engine, "--routes", "default,mail:2:1")
		if code != 0 {
			t.Fatalf("schema ends with %d", code)
		}
		if _, err := several.open(t).Exec(p.stdout.String()); err != nil {
			t.Fatal(err)
		}
		if s := statusOf(t, db); len(s.Routes) != 2 || s.SchemaVersion < 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A schema whose name is wrong is created: migrate says so, and status where it looks.
func TestPlaceIsNamed(t *testing.T) {
	t.Parallel()
	db := postgres(t)
	for _, c := range []struct{ command, says string }{
		{"migrate", `schema "typo", prefix "p_": tables created at version 1`},
		{"migrate", `schema "typo", prefix "p_": tables at version 1`},
		{"status", `schema "typo", prefix "p_", tables at version 1`},
	} {
		code, p := run(t, nil, c.command, "--db", db.url, "--schema", "typo", "--prefix", "p_")
		if code != 0 || !strings.Contains(p.stdout.String(), c.says) {
			t.Errorf("%s ends with %d and does not say %s", c.command, code, c.says)
		}
	}
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db database) {
		var all []*process
		for range 4 {
			all = append(all, start(t, nil, "migrate", "--db", db.url, "--routes", "default,mail:2:1"))
		}
		for _, p := range all {
			if code := p.wait(t); code != 0 {
				t.Errorf("one of four ends with %d", code)
			}
		}
		if s := statusOf(t, db); len(s.Routes) != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// What is wrong with a server is told before anything starts, with the remedy
// and without the password.
func TestBadServers(t *testing.T) {
	t.Parallel()
	nats := testenv.NATS(t)
	plain, err := testenv.EmbeddedNATS(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Stop)
	migrated := func(t *testing.T) database {
		db := postgres(t)
		db.url = strings.Replace(db.url, "postgres://postgres@", "postgres://postgres:hunter2@", 1)
		if code, p := run(t, nil, "migrate", "--db", db.url); code != 0 {
			t.Fatalf("migrate ends with %d: %s", code, &p.stderr)
		}
		return db
	}
	for _, c := range []struct {
		name string
		args func(t *testing.T) []string
		code int
		want []string
	}{
		{"tables missing", func(t *testing.T) []string {
			return []string{"run", "--db", postgres(t).url, "--nats", nats}
		}, 3, []string{"migrate"}},
		{"tables missing on SQLite", func(t *testing.T) []string {
			db := sqlite(t)
			if err := db.open(t).Ping(); err != nil {
				t.Fatal(err)
			}
			return []string{"status", "--db", db.url}
		}, 3, []string{"migrate"}},
		{"tables missing on MySQL", func(t *testing.T) []string {
			return []string{"run", "--db", mysql(t).url, "--nats", nats}
		}, 3, []string{"migrate"}},
		{"tables newer", func(t *testing.T) []string {
			db := migrated(t)
			setVersion(t, db, "99")
			return []string{"run", "--db", db.url, "--nats", nats}
		}, 3, []string{"99", "upgrade"}},
		{"tables of no version", func(t *testing.T) []string {
			db := migrated(t)
			setVersion(t, db, "0")
			return []string{"status", "--db", db.url}
		}, 3, []string{"postrider_meta", `"0"`, "repair"}},
		{"no such database", func(t *testing.T) []string {
			return []string{"status", "--db", strings.Replace(postgres(t).url, "/postrider_test_", "/missing_", 1)}
		}, 1, []string{"missing_", "does not exist"}},
		{"no such database on MySQL", func(t *testing.T) []string {
			return []string{"status", "--db", strings.Replace(mysql(t).url, "/postrider_test_", "/missing_", 1)}
		}, 1, []string{"missing_", "Unknown database"}},
		{"a role that may not write", func(t *testing.T) []string {
			db := migrated(t)
			role := testenv.Name("reader_")
			admin := db.open(t)
			for _, text := range []string{`CREATE ROLE ` + role + ` LOGIN`, `GRANT SELECT ON ALL TABLES IN SCHEMA public TO ` + role} {
				if _, err := admin.Exec(text); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() {
				if _, err := admin.Exec(`DROP OWNED BY ` + role + `; DROP ROLE ` + role); err != nil {
					t.Error(err)
				}
			})
			return []string{"run", "--db", strings.Replace(db.url, "postgres:hunter2@", role+":hunter2@", 1), "--nats", nats}
		}, 1, []string{"INSERT, UPDATE, DELETE on postrider_outbox", "USAGE on SEQUENCE postrider_outbox_pos", "GRANT UPDATE ON postrider_lanes TO reader_"}},
		{"a user that may not write on MySQL", func(t *testing.T) []string {
			db := mysql(t)
			if code, p := run(t, nil, "migrate", "--db", db.url); code != 0 {
				t.Fatalf("migrate ends with %d: %s", code, &p.stderr)
			}
			user := testenv.Name("reader_")
			u, err := url.Parse(db.url)
			if err != nil {
				t.Fatal(err)
			}
			admin := db.open(t)
			for _, text := range []string{`CREATE USER ` + user + ` IDENTIFIED BY 'hunter2'`, `GRANT SELECT ON ` + strings.Trim(u.Path, "/") + `.* TO ` + user} {
				if _, err := admin.Exec(text); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() {
				if _, err := admin.Exec(`DROP USER ` + user); err != nil {
					t.Error(err)
				}
			})
			u.User = url.UserPassword(user, "hunter2")
			return []string{"run", "--db", u.String(), "--nats", nats}
		}, 1, []string{"INSERT, UPDATE, DELETE on `", "`.`postrider_outbox` TO 'reader_", "GRANT UPDATE ON `", "`postrider_lane_marks` TO 'reader_"}},
		{"no such route", func(t *testing.T) []string {
			return []string{"run", "--db", migrated(t).url, "--nats", nats, "--routes", "mail"}
		}, 3, []string{`no route "mail", the store has "default"`, "postrider migrate --routes mail"}},
		{"limits of health pages that are not served", func(t *testing.T) []string {
			return []string{"run", "--db", migrated(t).url, "--nats", nats, "--health-count", "1000"}
		}, 2, []string{"health_count", "--health HOST:PORT"}},
		{"no broker", func(t *testing.T) []string {
			return []string{"run", "--db", migrated(t).url, "--nats", "nats://app:hunter2@127.0.0.1:1"}
		}, 1, []string{"nats://127.0.0.1:1", "server runs"}},
		{"no JetStream", func(t *testing.T) []string {
			return []string{"run", "--db", migrated(t).url, "--nats", plain.URL}
		}, 1, []string{"JetStream", "-js"}},
		{"no stream", func(t *testing.T) []string {
			return []string{"run", "--db", migrated(t).url, "--nats", nats, "--stream", "NOSUCH"}
		}, 1, []string{"NOSUCH", "does not exist", "create"}},
		{"setting out of its limits", func(t *testing.T) []string {
			return []string{"run", "--db", migrated(t).url, "--nats", nats, "--ttl", "10ms"}
		}, 2, []string{"TTL", "10ms", "1s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, p := run(t, nil, c.args(t)...)
			if code != c.code {
				t.Errorf("ends with %d, want %d", code, c.code)
			}
			for _, w := range c.want {
				if !strings.Contains(p.stderr.String(), w) {
					t.Errorf("the message does not show %q", w)
				}
			}
			if strings.Contains(p.stderr.String(), "hunter2") {
				t.Error("the message shows the password")
			}
		})
	}
}

// setVersion makes the tables look like another version's.
func setVersion(t *testing.T, db database, version string) {
	t.Helper()
	if _, err := db.open(t).Exec(`UPDATE postrider_meta SET value = '` + version + `' WHERE name = 'schema'`); err != nil {
		t.Fatal(err)
	}
}

// Ctrl-C is a clean stop too.
func TestInterruptEndsRun(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	p := start(t, nil, "run", "--migrate", "--db", db.url, "--nats", testenv.NATS(t))
	eventually(t, "the relay holds its lanes", func() bool { return strings.Contains(p.stderr.String(), "lanes held") })
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 0 {
		t.Errorf("ends with %d after an interrupt, want 0", code)
	}
}
