package nats_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/postrider/postrider/integration/testenv"
)

// childEnv makes this test binary a NATS server: a process that a test can
// kill.
const childEnv = "POSTRIDER_TEST_NATS_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := serve(dir, os.Getenv(childEnv+"_ADDR")); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

// serve runs a server until standard input ends, which it does with the parent.
func serve(dir, addr string) error {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return err
	}
	port := a.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir})
	if err != nil {
		return err
	}
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("server at %s is not ready after 10 s", addr)
	}
	fmt.Println("ready", strings.TrimPrefix(ns.ClientURL(), "nats://"))
	_, err = io.Copy(io.Discard, os.Stdin)
	ns.Shutdown()
	return err
}

// process is a NATS server in a process of its own, with its files, to be
// killed and started again at the same address.
type process struct {
	dir, addr string
	cmd       *exec.Cmd
	hold      io.Closer
}

func startProcess(t *testing.T) *process {
	t.Helper()
	p := &process{dir: t.TempDir(), addr: "127.0.0.1:0"}
	p.start(t)
	t.Cleanup(p.kill)
	return p
}

func (p *process) url() string { return "nats://" + p.addr }

func (p *process) start(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		line, err := p.try()
		if err == nil && strings.HasPrefix(line, "ready ") {
			p.addr = strings.TrimPrefix(line, "ready ")
			return
		}
		p.kill()
		if time.Now().After(deadline) {
			t.Fatalf("NATS server in %s at %s does not start: %s %v", p.dir, p.addr, line, err)
		}
		time.Sleep(20 * time.Millisecond) // its port may still be in use
	}
}

func (p *process) try() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	p.cmd = exec.Command(exe)
	p.cmd.Env = append(os.Environ(), childEnv+"="+p.dir, childEnv+"_ADDR="+p.addr)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if p.hold, err = p.cmd.StdinPipe(); err != nil {
		return "", err
	}
	if err := p.cmd.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), err
}

// kill ends the server without a chance to tidy up.
func (p *process) kill() {
	if p.cmd != nil && p.cmd.Process != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		p.hold.Close()
	}
	p.cmd = nil
}

// proxy stands between client and server and can hold or cut the line.
type proxy struct {
	l      net.Listener
	target string
	mu     sync.Mutex
	held   chan struct{} // closed: bytes flow
	conns  map[net.Conn]bool
	wg     sync.WaitGroup
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, target: target, held: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.held)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.flow()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.l.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(out, in) })
		p.wg.Go(func() { p.copy(in, out) })
	}
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		<-held
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hold lets nothing pass until flow.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

func (p *proxy) flow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.held:
	default:
		close(p.held)
	}
}

// cut ends the connections; what was held is lost.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}

// embedded is a server of the test's own, with JetStream and whatever change sets.
func embedded(t *testing.T, change func(*server.Options)) (url string) {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()}
	change(o)
	ns, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("embedded server is not ready after 10 s")
	}
	return ns.ClientURL()
}

// restricted lets user limited publish to what is allowed and not denied.
func restricted(deny ...string) func(*server.Options) {
	allow := &server.SubjectPermission{Allow: []string{"ok.>", "$JS.API.>", "_INBOX.>"}, Deny: deny}
	return func(o *server.Options) {
		o.Users = []*server.User{{Username: "limited", Password: "pw", Permissions: &server.Permissions{Publish: allow}}}
	}
}
