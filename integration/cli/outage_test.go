package cli

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/postrider/postrider/integration/testenv"
)

// proxy stands between the program and a server, and can be cut.
type proxy struct {
	ln     net.Listener
	target string
	mu     sync.Mutex
	down   bool
	conns  map[net.Conn]bool // true: the program's side
	wg     sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, conns: map[net.Conn]bool{}}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		ln.Close()
		p.cut(true)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) serve() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.target)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		if p.down {
			c.Close()
			s.Close()
			p.mu.Unlock()
			continue
		}
		p.conns[c], p.conns[s] = true, false
		p.mu.Unlock()
		for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
			p.wg.Go(func() {
				io.Copy(way[0], way[1])
				c.Close()
				s.Close()
			})
		}
	}
}

// cut ends every connection, and new ones until it is called with false.
func (p *proxy) cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	if down {
		for c := range p.conns {
			c.Close()
		}
		clear(p.conns)
	}
}

// say tells the program something in the server's name.
func (p *proxy) say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, ours := range p.conns {
		if ours {
			io.WriteString(c, line)
		}
	}
}

// through returns the URL with the proxy's address and that of the server.
func through(t *testing.T, s string) (string, *proxy) {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, u.Host)
	u.Host = p.ln.Addr().String()
	return u.String(), p
}

// A relay outlives its database and its broker, says when each is lost and
// back, and delivers what came in between.
func TestOutages(t *testing.T) {
	t.Parallel()
	onServers(t, outages)
}

func outages(t *testing.T, db database) {
	if code, p := run(t, nil, "migrate", "--db", db.url); code != 0 {
		t.Fatalf("migrate: %s", &p.stderr)
	}
	js, name, subject := stream(t, testenv.NATS(t))
	dbURL, database := through(t, db.url)
	natsURL, broker := through(t, testenv.NATS(t))
	relay := start(t, nil, "run", "--db", dbURL, "--nats", natsURL, "--stream", name, "--ttl", "2s", "--poll", "100ms",
		"--backoff-max", "500ms", "--log-level", "debug")
	stored := func() uint64 {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.Msgs
	}
	logged := func(line string) func() bool {
		return func() bool { return strings.Contains(relay.stderr.String(), line) }
	}
	db.publish(t, subject, 5)
	eventually(t, "the first messages are delivered", func() bool { return stored() == 5 })

	database.cut(true)
	eventually(t, "the log tells that the database is lost", logged("database lost"))
	db.publish(t, subject, 5)
	database.cut(false)
	eventually(t, "the log tells that the database is back", logged("database is back"))
	eventually(t, "what was published meanwhile is delivered", func() bool { return stored() == 10 })

	broker.cut(true)
	db.publish(t, subject, 5)
	eventually(t, "the log tells that the broker is lost", logged("broker lost"))
	broker.cut(false)
	eventually(t, "the log tells that the broker is back", logged("broker is back"))
	eventually(t, "what waited is delivered", func() bool { return stored() == 15 })

	if err := relay.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := relay.wait(t); code != 0 {
		t.Errorf("run ends with %d, want 0", code)
	}
	// A loop that was idle may find its dead connection after the others are
	// back; a state is never told twice in a row.
	var told []string
	for line := range strings.Lines(relay.stderr.String()) {
		for _, state := range []string{"database lost", "database is back"} {
			if strings.Contains(line, state) {
				told = append(told, state)
			}
		}
	}
	for i, state := range told {
		if want := []string{"database lost", "database is back"}[i%2]; state != want {
			t.Errorf("line %d of the log about the database is %q, want %q", i, state, want)
		}
	}
	if len(told)%2 != 0 {
		t.Errorf("the last line of the log about the database is %q", told[len(told)-1])
	}
}

// An error that the client library takes for final ends the connection and
// never tries again. The program must not live on without it, its lanes held.
func TestBrokerConnectionEndsForGood(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	natsURL, broker := through(t, testenv.NATS(t))
	relay := start(t, nil, "run", "--migrate", "--db", db.url, "--nats", natsURL)
	eventually(t, "the relay holds its lanes", func() bool { return strings.Contains(relay.stderr.String(), "lanes held") })
	broker.say("-ERR 'Something New'\r\n")
	if code := relay.wait(t); code != 1 {
		t.Errorf("run ends with %d, want 1", code)
	}
	for _, want := range []string{"ended for good, start again", "Something New"} {
		if !strings.Contains(strings.ToLower(relay.stderr.String()), strings.ToLower(want)) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

// A relay whose SQLite file is replaced, as by a backup put back, would go on with the
// old one, which nobody writes to any more, and look healthy.
func TestSQLiteFileIsReplaced(t *testing.T) {
	t.Parallel()
	for what, replace := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			data, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".new", data, 0o600), os.Rename(path+".new", path))
		},
	} {
		path := filepath.Join(t.TempDir(), "app.db")
		relay := start(t, nil, "run", "--migrate", "--db", "sqlite:"+path, "--nats", testenv.NATS(t))
		eventually(t, "the relay holds its lanes", func() bool { return strings.Contains(relay.stderr.String(), "lanes held") })
		if err := replace(path); err != nil {
			t.Fatal(err)
		}
		// Where it was removed, a connection may have made a new one meanwhile.
		if code := relay.wait(t); code != 1 || !strings.Contains(relay.stderr.String(), "app.db has been ") {
			t.Errorf("%s: run ends with %d and does not say so, want 1", what, code)
		}
	}
}

// The end of its terminal ends a relay as SIGTERM does, and not one under nohup.
func TestHangup(t *testing.T) {
	t.Parallel()
	// Else a program inherits that it is ignored, from whoever runs the tests.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	db := sqlite(t)
	args := []string{"run", "--migrate", "--db", db.url, "--nats", testenv.NATS(t)}
	relay := start(t, nil, args...)
	held := func() bool { return strings.Contains(relay.stderr.String(), "lanes held") }
	eventually(t, "the relay holds its lanes", held)
	if err := relay.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if code := relay.wait(t); code != 0 || !strings.Contains(relay.stderr.String(), "stopped cleanly") {
		t.Errorf("run ends with %d after SIGHUP, want 0", code)
	}
	relay = startBy(t, exec.Command("nohup", append([]string{binary}, args...)...), nil)
	eventually(t, "the second relay holds its lanes", held)
	if err := relay.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if s := statusOf(t, db); len(s.Relays) != 1 || strings.Contains(relay.stderr.String(), "stopp") {
		t.Errorf("after SIGHUP: status %+v", s)
	}
	if err := relay.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := relay.wait(t); code != 0 {
		t.Errorf("run ends with %d after SIGTERM, want 0", code)
	}
}
