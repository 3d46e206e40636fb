// Command testrun is `make test`: it starts the servers that the tests need,
// runs go test for every module of modules.txt, and says at the end which
// suites ran on which engines. Arguments are go test flags. With "exec" as the
// first argument it runs the command that follows instead, with the servers'
// URLs in its environment.
//
// It exits with 1 when a test failed or when an engine that
// POSTRIDER_TEST_REQUIRE names was used by no suite, and with 130 when it was
// interrupted. Servers and tests that it started end with it.
package main

import (
	"bufio"
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Stdout, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		code = 1
	}
	if interrupted {
		code = 130
	}
	os.Exit(code)
}

type engine struct {
	name, env string
	start     func(context.Context) (*testenv.Server, error)
}

var engines = []engine{
	{testenv.EnginePostgres, testenv.EnvPostgres, testenv.StartPostgres},
	{testenv.EngineMySQL, testenv.EnvMySQL, testenv.StartMySQL},
	{testenv.EngineNATS, testenv.EnvNATS, testenv.StartNATS},
}

const usage = `usage: testrun [flags of go test]   every module's tests, with the servers they need
       testrun exec command ...     the command, with the servers' URLs in its environment
`

func run(ctx context.Context, out io.Writer, flags []string) (int, error) {
	if len(flags) > 0 && slices.Contains([]string{"-h", "-help", "--help"}, flags[0]) {
		fmt.Fprint(out, usage)
		return 0, nil
	}
	root, err := testenv.Root()
	if err != nil {
		return 1, err
	}
	modules, err := readModules(filepath.Join(root, "modules.txt"))
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "postrider-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	record := filepath.Join(dir, "record")

	env := append(os.Environ(), testenv.EnvRecord+"="+record)
	for _, e := range engines {
		s, err := e.start(ctx)
		if err != nil {
			if testenv.Required(e.name) {
				return 1, fmt.Errorf("%s is required by %s: %w", e.name, testenv.EnvRequire, err)
			}
			fmt.Fprintf(out, "# no %s, its tests will be skipped: %v\n", e.name, err)
			continue
		}
		defer s.Stop()
		fmt.Fprintf(out, "# %s %s (%s) at %s\n", e.name, s.Version, s.Origin, testenv.Redact(s.URL))
		env = append(env, e.env+"="+s.URL)
	}
	if len(flags) > 1 && flags[0] == "exec" {
		return exitCode(ctx, command(ctx, out, root, env, flags[1:]))
	}
	args := []string{"go", "test"}
	if why := noRace(ctx); why == "" {
		args = append(args, testenv.RaceFlags...)
	} else {
		fmt.Fprintf(out, "# running without -race: %s\n", why)
		// Where CC is set the go command would try all the same.
		env = append(env, "CGO_ENABLED=0")
	}
	args = append(append(args, flags...), "./...")

	code := 0
	for _, m := range modules {
		fmt.Fprintf(out, "# module %s\n", m)
		c, err := exitCode(ctx, command(ctx, out, filepath.Join(root, m), env, args))
		if err != nil {
			return 1, err
		}
		if c != 0 {
			fmt.Fprintf(out, "# module %s failed\n", m)
			code = 1
		}
	}
	missing, err := report(out, record)
	if err != nil {
		return 1, err
	}
	for _, m := range missing {
		fmt.Fprintf(out, "# no suite ran on %s, which %s names\n", m, testenv.EnvRequire)
		code = 1
	}
	return code, nil
}

// command runs args in a process group of its own: the go command alone would
// not hand an interrupt on to the test binaries.
func command(ctx context.Context, out io.Writer, dir string, env, args []string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	signalGroup := func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }
	cmd.Cancel = func() error { return signalGroup(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		signalGroup(syscall.SIGKILL)
	}
	return err
}

// exitCode is the status of a command that ran to its end.
func exitCode(ctx context.Context, err error) (int, error) {
	if ctx.Err() != nil {
		return 1, errors.New("interrupted")
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// noRace tells why the race detector cannot be used: it needs cgo.
func noRace(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "go", "env", "CGO_ENABLED", "CC").Output()
	if err != nil {
		return "go env: " + err.Error()
	}
	enabled, cc, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if name, _, _ := strings.Cut(strings.TrimSpace(cc), " "); name == "" {
		return "no C compiler is named by CC"
	} else if _, err := exec.LookPath(name); err != nil {
		return "there is no C compiler " + name
	}
	if enabled != "1" {
		return "CGO_ENABLED=" + enabled
	}
	return ""
}

// readModules reads one directory per line; # starts a comment.
func readModules(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var modules []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			modules = append(modules, line)
		}
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("%s names no module", path)
	}
	return modules, nil
}

// report prints the suites by engine and returns the required engines that no
// suite used.
func report(out io.Writer, record string) (missing []string, err error) {
	ran := map[string][]string{} // engine and version -> suites
	used := map[string]bool{}
	if f, err := os.Open(record); err == nil {
		defer f.Close()
		sc := bufio.NewScanner(f)
		for sc.Scan() {
			if w := strings.SplitN(sc.Text(), " ", 3); len(w) == 3 {
				key := w[1] + " " + w[2]
				if !slices.Contains(ran[key], w[0]) {
					ran[key] = append(ran[key], w[0])
				}
				used[w[1]] = true
			}
		}
		if err := sc.Err(); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	fmt.Fprintln(out, "# suites and engines")
	keys := make([]string, 0, len(ran))
	for k := range ran {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		slices.Sort(ran[k])
		fmt.Fprintf(out, "#   %-18s %s\n", k, strings.Join(ran[k], " "))
	}
	if len(keys) == 0 {
		fmt.Fprintln(out, "#   none")
	}
	for _, name := range []string{testenv.EnginePostgres, testenv.EnginePgBouncer, testenv.EngineMySQL, testenv.EngineOracle, testenv.EngineSQLServer, testenv.EngineSQLite, testenv.EngineNATS} {
		if testenv.Required(name) && !used[name] {
			missing = append(missing, name)
		}
	}
	return missing, nil
}
