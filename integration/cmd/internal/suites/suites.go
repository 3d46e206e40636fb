// Package suites is what the commands have in common that run suites on a server
// which the machine does not have.
package suites

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/integration/testenv"
)

// Suite is a package of integration, and patterns of what is left out of it: of
// tests, or of "test/subtest".
type Suite struct {
	Name string
	Skip []string
}

// skip is the flag for it. Go test takes the first alternative that agrees with a
// name as far as that goes, and one for subtests agrees with every test: behind it
// a test's own pattern would count for nothing.
func (s Suite) skip() string {
	depth := func(pattern string) int { return strings.Count(pattern, "/") }
	list := slices.SortedStableFunc(slices.Values(s.Skip), func(a, b string) int { return depth(a) - depth(b) })
	return "-test.skip=" + strings.Join(list, "|")
}

// Main is the main function of a command: it exits with 1 where run fails or says
// that a suite failed, with 130 after an interrupt.
func Main(name string, run func(ctx context.Context, out io.Writer, args []string) (ok bool, err error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Stdout, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	case !ok:
		os.Exit(1)
	}
}

// TempDir makes a directory for servers, which run as somebody else, who has to read
// what is written there.
func TempDir(name string) (string, error) {
	dir, err := os.MkdirTemp("", "postrider-"+name+"-")
	if err != nil {
		return "", err
	}
	syscall.Umask(0o022)
	return dir, os.Chmod(dir, 0o755)
}

// Untested says that there is no server and on what nothing was tested. It is a failure
// only where POSTRIDER_TEST_REQUIRE has the name required.
func Untested(ctx context.Context, out io.Writer, required string, why error, on string) (ok bool, err error) {
	why = fmt.Errorf("%w: not tested on %s", why, on)
	if ctx.Err() != nil || testenv.Required(required) {
		return false, why
	}
	fmt.Fprintln(out, "#", why)
	return true, nil
}

// Build compiles the suites and the program into dir.
func Build(ctx context.Context, root, dir string, list []Suite) error {
	args := []string{"test", "-c", "-o", dir + "/"}
	for _, s := range list {
		args = append(args, "./"+s.Name)
	}
	for _, c := range []struct {
		dir  string
		args []string
	}{
		{filepath.Join(root, "integration"), args},
		{filepath.Join(root, "cmd", "postrider"), []string{"build", "-o", filepath.Join(dir, "postrider"), "."}},
	} {
		if said, err := command(ctx, c.dir, nil, "go", c.args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(c.args, " "), err, said)
		}
	}
	return nil
}

// Run runs what Build compiled, and the demo in the database of a URL, and says how
// each went on the server of that name.
func Run(ctx context.Context, out io.Writer, root, dir, server string, list []Suite, env []string, database string) (ok bool) {
	env = append(os.Environ(), env...)
	ok = true
	step := func(name string, cmd *exec.Cmd) {
		began := time.Now()
		said, err := cmd.CombinedOutput()
		took := time.Since(began).Seconds()
		if err == nil && bytes.Contains(said, []byte("no tests to run")) {
			err = errors.New("it has no test")
		}
		if err != nil {
			ok = false
			fmt.Fprintf(out, "%s# %s: %s failed after %.0f s: %v\n", said, server, name, took, err)
			return
		}
		fmt.Fprintf(out, "# %s: %s passed in %.0f s\n", server, name, took)
	}
	for _, s := range list {
		step(s.Name, command(ctx, filepath.Join(root, "integration", s.Name), env,
			filepath.Join(dir, s.Name+".test"), "-test.timeout=5m", s.skip()))
	}
	step("demo", command(ctx, dir, env, filepath.Join(dir, "postrider"), "demo", "--orders", "300", "--db", database))
	return ok
}

func command(ctx context.Context, dir string, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
