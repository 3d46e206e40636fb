//go:build prove && linux

package chaos_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/postrider/postrider/integration/testenv"
)

// roleEnv makes this test binary something else: a process that a test can
// kill. The other variables are the role's own.
const roleEnv = "POSTRIDER_TEST_CHAOS_ROLE"

var binary string // postrider, built once

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
	case "nats":
		end(serveNATS(os.Getenv("CHAOS_DIR"), os.Getenv("CHAOS_ADDR")))
	case "relay":
		end(runKillable(os.Getenv("CHAOS_DB"), os.Getenv("CHAOS_NATS"), os.Getenv("CHAOS_POISON") == "park"))
	default:
		end(fmt.Errorf("no role %q", role))
	}
	dir, err := os.MkdirTemp("", "postrider-chaos-")
	if err != nil {
		end(err)
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

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// spawner starts processes that die with this one, however it ends. The kernel
// ties them to the thread that started them.
type spawner chan func()

func newSpawner(t *testing.T) spawner {
	s := make(spawner)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		for f := range s {
			f()
		}
	}()
	t.Cleanup(func() {
		close(s)
		<-ended
	})
	return s
}

// process is a child in a session of its own: the kernel hangs up on an
// orphaned group with a stopped member.
type process struct {
	cmd   *exec.Cmd
	log   *buffer
	ended chan struct{}
}

func (s spawner) start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, log: &buffer{}, ended: make(chan struct{})}
	cmd.Stderr = p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	s <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // what it says stands in ProcessState
		close(p.ended)
	}()
	return p, nil
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// stopped tells whether the kernel holds the process at a SIGSTOP.
func (p *process) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	_, state, ok := strings.Cut(string(stat), ") ")
	return err == nil && ok && strings.HasPrefix(state, "T")
}

// within tells whether the process ends within d.
func (p *process) within(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.ended:
		return true
	case <-t.C:
		return false
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// withMark lists the processes whose command line or environment holds mark.
func withMark(t *testing.T, mark string) (pids []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		line, _ := os.ReadFile(d + "/cmdline")
		env, _ := os.ReadFile(d + "/environ")
		if bytes.Contains(line, []byte(mark)) || bytes.Contains(env, []byte(mark)) {
			pids = append(pids, filepath.Base(d))
		}
	}
	return pids
}

// buffer is a log, written by the process and read by the test.
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

// broker is a NATS server in a process of its own, with its files, to be killed
// and started again at the same address.
type broker struct {
	spawn     spawner
	dir, addr string
	p         *process
}

func newBroker(t *testing.T, spawn spawner) *broker {
	t.Helper()
	b := &broker{spawn: spawn, dir: t.TempDir(), addr: "127.0.0.1:0"}
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	return b
}

func (b *broker) url() string { return "nats://" + b.addr }

// start returns when the server takes connections.
func (b *broker) start() error {
	for deadline := time.Now().Add(time.Minute); ; {
		line, err := b.try()
		if addr, ok := strings.CutPrefix(line, "ready "); ok && err == nil {
			b.addr = addr
			return nil
		}
		b.kill()
		if time.Now().After(deadline) {
			return fmt.Errorf("NATS server at %s does not start: %w", b.addr, err)
		}
		time.Sleep(20 * time.Millisecond) // its port may still be in use
	}
}

func (b *broker) try() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"=nats", "CHAOS_DIR="+b.dir, "CHAOS_ADDR="+b.addr)
	out, in, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer out.Close()
	cmd.Stdout = in
	b.p, err = b.spawn.start(cmd)
	in.Close()
	if err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		err = errors.Join(err, errors.New(b.p.log.String()))
	}
	return strings.TrimSpace(line), err
}

// kill ends the server without a chance to tidy up.
func (b *broker) kill() {
	if b.p != nil {
		b.p.kill()
	}
}

func serveNATS(dir, addr string) error {
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
	select {}
}
