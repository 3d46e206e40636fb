package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// mutant is one patch.
type mutant struct {
	name    string   // of the file, without .patch
	patch   string   // path
	removes string   // what is gone
	breaks  string   // the invariant that the proof must fail on
	proof   []string // arguments of go test
	short   bool     // takes a few seconds
}

// load reads every patch of a folder, by name.
func load(dir string) ([]*mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no patches in %s", dir)
	}
	var list []*mutant
	for _, p := range paths {
		m, err := parse(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *mutant) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// parse reads the head of a patch: "Name: value" lines up to the first diff. A
// line that starts with a blank goes on with the one before.
func parse(path string) (*mutant, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch"), patch: path}
	head, _, ok := strings.Cut(string(data), "\ndiff --git ")
	if !ok {
		return nil, errors.New("it holds no diff")
	}
	values := map[string]string{}
	last := ""
	for line := range strings.Lines(head) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, " ") && last != "" {
			values[last] += " " + strings.TrimSpace(line)
			continue
		}
		name, value, ok := strings.Cut(line, ": ")
		if !ok || !slices.Contains([]string{"Removes", "Breaks", "Proof", "Short"}, name) || values[name] != "" {
			return nil, fmt.Errorf("head line %q: use Removes, Breaks, Proof and Short, each once", line)
		}
		values[name], last = strings.TrimSpace(value), name
	}
	m.removes, m.breaks, m.proof = values["Removes"], values["Breaks"], strings.Fields(values["Proof"])
	m.short = values["Short"] == "yes"
	if m.removes == "" || m.breaks == "" || len(m.proof) == 0 {
		return nil, errors.New("its head lacks Removes, Breaks or Proof")
	}
	return m, nil
}

// proofTimeout bounds one go test; a mutant may well be stuck.
const proofTimeout = 4 * time.Minute

// tree is a copy of the repository for one mutant at a time.
type tree struct {
	root, dir string
}

// try applies the mutant to a fresh copy and runs its proof. It returns the line
// that names the invariant.
func (t tree) try(ctx context.Context, m *mutant) (seen string, err error) {
	if err := os.RemoveAll(t.dir); err != nil {
		return "", err
	}
	if err := copyTree(t.root, t.dir); err != nil {
		return "", err
	}
	if out, err := t.command(ctx, "git", "apply", m.patch).output(); err != nil {
		return "", fmt.Errorf("it does not apply any more: %s", out)
	}
	args := append([]string{"test", "-count=1", "-vet=off", "-timeout", proofTimeout.String()}, m.proof...)
	out, err := t.command(ctx, "go", args...).output()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		return "", err
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		return "", fmt.Errorf("it does not compile:\n%s", tail(out))
	case err == nil:
		return "", fmt.Errorf("not caught: go test %s passed", strings.Join(m.proof, " "))
	}
	if seen = m.find(out); seen == "" {
		return "", fmt.Errorf("not caught: go test %s failed, but not on %q:\n%s", strings.Join(m.proof, " "), m.breaks, tail(out))
	}
	return seen, nil
}

// find returns the first line of a failed test's output that names the
// invariant: as "order: ..." or as the name of a failed test.
func (m *mutant) find(out []byte) string {
	name := regexp.QuoteMeta(m.breaks)
	line := regexp.MustCompile(`(?m)^.*(?:: ` + name + `: |--- FAIL: (?:\S*/)?` + name + `[ /]).*$`)
	return strings.TrimSpace(string(line.Find(out)))
}

func tail(out []byte) string {
	const most = 2000
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return strings.TrimSpace(string(out))
}

type command struct{ *exec.Cmd }

// command runs in the copy, in a process group of its own: the go command alone
// would not take the test binary along when it ends.
func (t tree) command(ctx context.Context, name string, args ...string) command {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.dir
	// Git must not take a repository around the copy for its own: it would then
	// ignore the paths.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(t.dir))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return command{cmd}
}

func (c command) output() ([]byte, error) { return c.CombinedOutput() }

// copyTree copies a checkout without what starts with a dot.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case rel != "." && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // an editor's
			}
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
}
