package main

import (
	"bufio"
	"bytes"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/testenv"
)

func TestReport(t *testing.T) {
	t.Setenv(testenv.EnvRequire, "postgres,sqlite,nats")
	record := filepath.Join(t.TempDir(), "record")
	text := "integration/b postgres 15.1\nintegration/a postgres 15.1\nintegration/a postgres 15.1\nintegration/a sqlite 3.50.0\nintegration/c pgbouncer transaction mode\nhalf line\n"
	if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	missing, err := report(&out, record)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(missing, []string{"nats"}) {
		t.Errorf("missing %v, want nats", missing)
	}
	want := "# suites and engines\n#   pgbouncer transaction mode integration/c\n#   postgres 15.1      integration/a integration/b\n#   sqlite 3.50.0      integration/a\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	if missing, err := report(&out, record+"-none"); err != nil || len(missing) != 3 {
		t.Errorf("without a record: missing %v, %v; want all three", missing, err)
	}
}

// TestHelp: it starts no server and runs no go test, which has a help of its own.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-h", "-help", "--help"} {
		var out bytes.Buffer
		code, err := run(t.Context(), &out, []string{flag})
		if code != 0 || err != nil || out.String() != usage {
			t.Errorf("%s: exit status %d, %v, %q", flag, code, err, out.String())
		}
	}
}

func TestReadModules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "modules.txt")
	for text, want := range map[string][]string{".\n\n# no\na/b # why\n": {".", "a/b"}, "# none\n": nil} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readModules(path)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}

// An interrupted run takes its servers and its command along.
func TestInterruptLeavesNothing(t *testing.T) {
	t.Parallel()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "testrun")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// The command prints where the servers are and stays.
	cmd := exec.Command(bin, "exec", "sh", "-c", `echo "url ${POSTRIDER_TEST_POSTGRES:-none} $POSTRIDER_TEST_NATS"; exec sleep 600`)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), testenv.EnvPostgres+"=", testenv.EnvNATS+"=", testenv.EnvLocal+"=")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	var hosts []string
	for sc := bufio.NewScanner(out); len(hosts) == 0 && sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), "url "); ok {
			for _, s := range strings.Fields(rest) {
				if u, err := url.Parse(s); err == nil && u.Host != "" {
					hosts = append(hosts, u.Host)
				}
			}
		}
	}
	if len(hosts) == 0 {
		t.Fatal("no server was started")
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("testrun does not end after an interrupt")
	}
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit status %d, want 130", code)
	}
	for _, host := range hosts {
		if c, err := net.Dial("tcp", host); err == nil {
			c.Close()
			t.Errorf("the server on %s is still there", host)
		}
	}
}
