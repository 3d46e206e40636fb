package main

import (
	"bytes"
	"context"
	"database/sql"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/postrider/postrider/outbox"
)

// result is what a user sees of one call.
type result struct {
	code        int
	stdout, err string
}

func call(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := Run(ctx, args, &stdout, &stderr, env)
	return result{code, stdout.String(), stderr.String()}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every mistake is told with the value, what is possible and what to do, on
// standard error, and with a status of its own.
func TestBadInput(t *testing.T) {
	t.Parallel()
	db := "--db=sqlite:" + filepath.Join(t.TempDir(), "new.db")
	run := func(args ...string) []string {
		return append([]string{"run", db, "--nats=nats://127.0.0.1:1"}, args...)
	}
	for _, c := range []struct {
		name string
		env  []string
		args []string
		code int
		want []string
	}{
		{"no command", nil, nil, 2, []string{"migrate", "run", "status"}},
		{"unknown command", nil, []string{"rum"}, 2, []string{"rum", `"run"`}},
		{"unknown flag", nil, []string{"run", "--batsh=3"}, 2, []string{"--batsh", "--batch", `Run "postrider run --help"`}},
		{"unknown flag of another command", nil, []string{"status", "--nats=x"}, 2, []string{"--nats", `Run "postrider status --help"`}},
		{"database as argument", nil, []string{"status", "postgres://u:hunter2/@h/db"}, 2, []string{"://u:xxxxx@h/db"}},
		{"surplus argument", nil, []string{"status", "now"}, 2, []string{"now"}},
		{"no database", nil, []string{"status"}, 2, []string{"db", "--db", "POSTRIDER_DB"}},
		{"no broker", nil, []string{"run", db}, 2, []string{"nats", "--nats", "POSTRIDER_NATS"}},
		{"unknown variable", []string{"POSTRIDER_MAX_ATEMPTS=3"}, []string{"status", db}, 2, []string{"POSTRIDER_MAX_ATEMPTS", "POSTRIDER_MAX_ATTEMPTS"}},
		{"missing file", nil, run("--config=/nonexistent/p.yaml"), 2, []string{"/nonexistent/p.yaml"}},
		{"unknown key", nil, run("--config=" + write(t, "a.yaml", "btach: 3\n")), 2, []string{"btach", "batch", "a.yaml"}},
		{"unknown nested key", nil, run("--config=" + write(t, "b.yaml", "relay:\n  polll: 3s\n")), 2, []string{"relay.polll", "nearest known one is poll"}},
		{"file without end", nil, run("--config=/dev/zero"), 2, []string{"/dev/zero", "1048576"}},
		{"number that means the default", nil, run("--max-attempts=0"), 2, []string{"--max-attempts", "leave it out"}},
		{"duration that means the default", []string{"POSTRIDER_GRACE=0s"}, run(), 2, []string{"POSTRIDER_GRACE", "leave it out"}},
		{"second document", nil, run("--config=" + write(t, "two.yaml", "# all\n---\nbatch: 7\n---\nmax_attempts: 3\n")), 2, []string{"two.yaml", "several YAML documents"}},
		{"bytes that are no text", nil, []string{"park", "--db=sqlite:x", "--key", "\xff"}, 2, []string{"argument 4", "--key-hex"}},
		{"zero in file", nil, run("--config=" + write(t, "z.yaml", "batch: 0\n")), 2, []string{"z.yaml", "batch", "leave it out"}},
		{"no SQLite file", nil, []string{"status", "--db=sqlite:" + write(t, "text.db", strings.Repeat("not a database ", 100))}, 1, []string{"text.db", "SQLite file"}},
		{"SQLite file in no directory", nil, []string{"migrate", "--db=sqlite:/nonexistent/dir/p.db"}, 1, []string{"/nonexistent/dir/p.db", "directory"}},
		{"no YAML", nil, run("--config=" + write(t, "c.yaml", "a: [b\n")), 2, []string{"c.yaml", "YAML"}},
		{"no mapping", nil, run("--config=" + write(t, "d.yaml", "- postgres://u:hunter2@h/db\n")), 2, []string{"d.yaml", "mapping"}},
		{"number", nil, run("--batch=many"), 2, []string{"--batch", "many", "whole number"}},
		{"number in file", nil, run("--config=" + write(t, "e.yaml", "batch: 1.5\n")), 2, []string{"e.yaml", "batch", "1.5"}},
		{"duration without unit", nil, run("--config=" + write(t, "f.yaml", "ttl: 15\n")), 2, []string{"ttl", "15", "15s"}},
		{"duration in environment", []string{"POSTRIDER_TTL=soon"}, run(), 2, []string{"POSTRIDER_TTL", "soon", "15s"}},
		{"text that is a number", nil, run("--config=" + write(t, "g.yaml", "prefix: 7\n")), 2, []string{"prefix", "7", "quotes"}},
		{"truth", []string{"POSTRIDER_MIGRATE=perhaps"}, run(), 2, []string{"POSTRIDER_MIGRATE", "perhaps", "true or false"}},
		{"log format", nil, run("--log-format=xml"), 2, []string{"xml", "text or json"}},
		{"log level", nil, run("--log-level=loud"), 2, []string{"loud", "debug, info"}},
		{"poison policy", []string{"POSTRIDER_POISON=drop"}, run(), 2, []string{"poison", "drop", "dead-letter or park"}},
		{"route counts", nil, run("--routes=mail:4"), 2, []string{"mail:4", "NAME:ORDERED:UNORDERED"}},
		{"route without name", nil, run("--routes=a,,b"), 2, []string{"without a name"}},
		{"route twice", nil, run("--routes=a,a"), 2, []string{`"a" twice`}},
		{"route key", nil, run("--config=" + write(t, "h.yaml", "routes:\n- {name: a, lanes: 3}\n")), 2, []string{"lanes", "ordered"}},
		{"database scheme", nil, []string{"status", "--db=mongodb://h/db"}, 2, []string{"mongodb", "postgres://", "sqlite:"}},
		{"broker scheme", nil, []string{"run", db, "--nats=kafka://h"}, 2, []string{"kafka", "nats://"}},
		{"SQLite file missing", nil, []string{"status", db}, 1, []string{"new.db", "does not exist", "migrate"}},
		{"schema on SQLite", nil, []string{"migrate", db, "--schema=s"}, 2, []string{`"s"`, "prefix"}},
		{"prefix", nil, []string{"migrate", db, "--prefix=a-b"}, 2, []string{"a-b"}},
		{"no server", nil, []string{"status", "--db=postgres://u:hunter2@127.0.0.1:1/shop"}, 1, []string{"127.0.0.1:1", "shop"}},
		{"script without engine", nil, []string{"schema"}, 2, []string{"--engine", "postgres", "sqlite"}},
		{"script of another engine", nil, []string{"schema", "--engine=mongo"}, 2, []string{"mongo", "postgres"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := call(t, c.env, c.args...)
			if got.code != c.code {
				t.Errorf("exit status %d, want %d", got.code, c.code)
			}
			for _, w := range c.want {
				if !strings.Contains(got.err, w) {
					t.Errorf("the message does not show %q", w)
				}
			}
			if strings.Contains(got.err, "hunter2") {
				t.Error("the message shows the password")
			}
			if t.Failed() {
				t.Logf("stderr: %s", got.err)
			}
		})
	}
	t.Cleanup(func() {
		if _, err := os.Stat(strings.TrimPrefix(db, "--db=sqlite:")); err == nil {
			t.Error("a command that failed made the database")
		}
	})
}

// settingsOf parses a run command and merges its settings.
func settingsOf(t *testing.T, env []string, args ...string) *settings {
	t.Helper()
	var c cli
	parser, err := kong.New(&c, kong.Vars{"version": "test"})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(append([]string{"run"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	s, err := (&program{ctx: t.Context(), environ: env, parsed: parsed}).settings()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := write(t, "p.yaml", "db: file-db\nnats: file-nats\nbatch: 7\nin_flight: 9\nttl: 3s\nmigrate: true\nroutes:\n- mail\n- {name: shop, ordered: 4, unordered: 2}\n")
	env := []string{"POSTRIDER_CONFIG=" + file, "POSTRIDER_DB=env-db", "POSTRIDER_BATCH=8", "POSTRIDER_STREAM=",
		"POSTRIDER_PORT=tcp://10.0.0.1:80", "POSTRIDER_SERVICE_HOST=10.0.0.1", "POSTRIDER_TEST_NATS=x", "PATH=/bin"}
	s := settingsOf(t, env, "--db=flag-db", "--max-attempts=-1")
	want := &settings{
		db: "flag-db", nats: "file-nats", batch: 8, inFlight: 9, maxAttempts: -1, ttl: 3 * time.Second, migrate: true,
		routes: []outbox.Route{{Name: "mail"}, {Name: "shop", Ordered: 4, Unordered: 2}},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	if s := settingsOf(t, env, "--routes=a:1:2,b"); !slices.Equal(s.routes, []outbox.Route{{Name: "a", Ordered: 1, Unordered: 2}, {Name: "b"}}) {
		t.Errorf("routes of the flag: %+v", s.routes)
	}
}

// A setting that only the file knows, or only the flags, would be a trap.
func TestEverySettingHasAFlag(t *testing.T) {
	t.Parallel()
	var c cli
	parser, err := kong.New(&c, kong.Vars{"version": "test"})
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]bool{}
	for _, node := range parser.Model.Children {
		if node.Name != "run" {
			continue
		}
		for _, f := range node.Flags {
			flags["--"+f.Name] = true
		}
	}
	delete(flags, "--config")
	for _, key := range slices.Sorted(maps.Keys((&settings{}).fields())) {
		if !flags[flagName(key)] {
			t.Errorf("no flag %s", flagName(key))
		}
		delete(flags, flagName(key))
	}
	for f := range flags {
		t.Errorf("flag %s is no setting", f)
	}
}

func TestSchemaScript(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"schema", "--engine=postgres", "--schema=shop", "--prefix=pr_"},
		{"schema", "--engine=sqlite", "--prefix=pr_"},
		{"schema", "--engine=mysql", "--schema=shop", "--prefix=pr_"},
		{"schema", "--engine=mariadb", "--prefix=pr_"},
		{"schema", "--engine=oracle", "--schema=SHOP", "--prefix=pr_"},
		{"schema", "--engine=sqlserver", "--schema=shop", "--prefix=pr_"},
		{"schema", "--db=sqlite:nowhere.db", "--prefix=pr_"},
	} {
		got := call(t, nil, args...)
		if got.code != 0 || !strings.Contains(got.stdout, "pr_outbox") || !strings.Contains(strings.ToUpper(got.stdout), "CREATE TABLE") {
			t.Errorf("%v: status %d, %s%s", args, got.code, got.stdout, got.err)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"run", "--help"}, {"--version"}} {
		if got := call(t, nil, args...); got.code != 0 || got.stdout == "" || got.err != "" {
			t.Errorf("%v: status %d, stdout %q, stderr %q", args, got.code, got.stdout, got.err)
		}
	}
}

// A whole life on SQLite: nothing there, migrate twice, status in both forms.
func TestMigrateAndStatus(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "o.db")
	db := "--db=sqlite:" + path
	for _, did := range []string{"created at", "at"} {
		got := call(t, nil, "migrate", db, "--routes=mail:2:1,default")
		if !strings.Contains(got.stdout, `o.db, prefix "postrider_": tables `+did+" version 1\n") {
			t.Errorf("migrate does not say where, and that tables are %s a version: %s", did, got.stdout)
		}
		if got.code != 0 || !strings.Contains(got.stdout, "route mail: 2 ordered lanes, 1 unordered") || !strings.Contains(got.stdout, "route default: 16 ordered lanes, 8 unordered") {
			t.Fatalf("migrate: status %d, %s%s", got.code, got.stdout, got.err)
		}
	}
	got := call(t, nil, "status", db)
	if got.code != 0 || !strings.Contains(got.stdout, `o.db, prefix "postrider_", tables at version 1`) || !strings.Contains(got.stdout, "mail") || !strings.Contains(got.stdout, "0 of 3") || !strings.Contains(got.stdout, "no relay is alive") || strings.Contains(got.stdout, "no route") {
		t.Errorf("status: status %d, %s%s", got.code, got.stdout, got.err)
	}
	got = call(t, nil, "status", db, "--json")
	if got.code != 0 || !strings.HasPrefix(got.stdout, `{"database":"sqlite:`) || !strings.Contains(got.stdout, `","schema":"","prefix":"postrider_","schema_version":1,`) || !strings.Contains(got.stdout, `"lanes":3,"lanes_held":0`) || strings.Count(got.stdout, "\n") != 1 {
		t.Errorf("status --json: status %d, %s%s", got.code, got.stdout, got.err)
	}
	file, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Exec(`INSERT INTO postrider_outbox (id, lane, transport, message_type, destination, ce_source)
VALUES (randomblob(16), 999, 'mail', 't.v1', 'd', '/elsewhere')`); err != nil {
		t.Fatal(err)
	}
	if got := call(t, nil, "status", db); !strings.Contains(got.stdout, "1 in lanes of no route") {
		t.Errorf("status does not tell of the row in a lane of no route: %s", got.stdout)
	}
	got = call(t, nil, "migrate", db, "--routes=mail:5:1")
	if got.code == 0 || !strings.Contains(got.err, "5") || !strings.Contains(got.err, "2") {
		t.Errorf("migrate with other counts: status %d, %s%s", got.code, got.stdout, got.err)
	}
	got = call(t, nil, "status", db, "--prefix=other_")
	if got.code != exitSchema || !strings.Contains(got.err, "other_") || !strings.Contains(got.err, "igrate") {
		t.Errorf("status without tables: status %d, %s", got.code, got.err)
	}
}

// The example shows every setting, and the defaults it tells are those of an
// empty file.
func TestExampleFile(t *testing.T) {
	t.Parallel()
	file, err := fileSource("postrider.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys((&settings{}).fields())) {
		if !file.k.Exists(key) {
			t.Errorf("the example has no %s", key)
		}
	}
	s := settingsOf(t, nil, "--config=postrider.example.yaml")
	if s.db == "" || s.nats == "" || s.ttl != 15*time.Second || s.maxAttempts != 10 || len(s.routes) != 2 || s.routes[1] != (outbox.Route{Name: "mail", Ordered: 16, Unordered: 8}) {
		t.Errorf("%+v", s)
	}
	// Only the database is not there.
	if got := call(t, nil, "run", "--config=postrider.example.yaml", "--db=sqlite:"+filepath.Join(t.TempDir(), "none.db")); got.code != exitFailed || !strings.Contains(got.err, "does not exist") {
		t.Errorf("run as the example is: status %d, %s", got.code, got.err)
	}
}

func TestSeveralDocuments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, "# none\n": false, "a: 1\n": false, "%YAML 1.2\n# x\n---\na: 1\n...\n# end\n": false, "---\r\na: |\r\n  ---\r\n": false,
		"--- {a: 1}\n": false, "a: ---x\n---b: 1\n": false, "a: 1\n---\n": false, "a: 1\n---\n# nothing\n": false,
		"a: 1\n---\nb: 1\n": true, "a: 1\n...\n---\nb: 1\n": true, "--- {a: 1}\n--- # x\n{b: 1}": true,
	} {
		if got := several([]byte(text)); got != want {
			t.Errorf("%q: several documents %t, want %t", text, got, want)
		}
	}
}
