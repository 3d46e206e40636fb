package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/testenv"
)

func TestInterrupt(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	tmp := t.TempDir()
	cmd, _, stderr := command(t, tmp, "--crash", "--orders", "100000", "--db", url)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "relays", func() bool { return len(children(t, cmd.Process.Pid)) == 2 })
	kids := children(t, cmd.Process.Pid)
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("%v, want exit status 130\n%s", err, stderr)
	}
	for _, pid := range kids {
		if alive(pid) {
			t.Errorf("relay process %d outlived the demo", pid)
		}
	}
	empty(t, tmp)
	if s := schemas(t, url); len(s) > 0 {
		t.Errorf("schemas %q were left", s)
	}
}

func TestRelaysDieWithAKilledDemo(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	cmd, _, _ := command(t, tmp, "--crash", "--orders", "100000", "--relays", "3")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "relays", func() bool { return len(children(t, cmd.Process.Pid)) == 3 })
	kids := children(t, cmd.Process.Pid)
	// A stopped process cannot read the end of its input.
	syscall.Kill(kids[0], syscall.SIGSTOP)
	cmd.Process.Kill()
	cmd.Wait()
	await(t, "the end of the relays", func() bool {
		return !slices.ContainsFunc(kids, alive)
	})
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

// children lists the running child processes of pid.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		b, _ := os.ReadFile(path)
		// pid (name) state ppid ...; a name may hold anything but ends with
		// the last parenthesis.
		_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
		if f := strings.Fields(rest); len(f) < 2 || f[1] != strconv.Itoa(pid) {
			continue
		}
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && alive(n) {
			pids = append(pids, n)
		}
	}
	return pids
}

// alive tells whether pid is a running process of the program under test; one
// that has ended and waits for its parent is not.
func alive(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && exe == binary.path
}
