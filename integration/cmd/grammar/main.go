// Command grammar is `make grammar`: it holds every statement and the schema of
// the MySQL dialect against MySQL's own grammar, for no MySQL server runs where
// the tests do: MariaDB does. The parser comes from npm, into a directory that
// goes at the end; no script of a package is run.
//
// Where npm or node is missing or does not answer in time it says so and exits
// with 0. It exits with 1 when a statement is refused, and when a statement that
// has to be refused is not.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/store/schema"
)

// packages are the grammar and the runtime that it was made with.
var packages = []string{"antlr4ts-sql@1.1.0", "antlr4ts@0.5.0-alpha.4"}

const npmTimeout = 60 * time.Second

//go:embed check.js
var script []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "grammar:", err)
		os.Exit(1)
	}
}

type statement struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

type refusal struct{ Name, Error string }

func run(ctx context.Context) error {
	root, err := testenv.Root()
	if err != nil {
		return err
	}
	list, err := statements(filepath.Join(root, "store", "internal", "sqlcore", "testdata", "mysql"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "postrider-grammar-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := install(ctx, dir); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Printf("# %v: the statements were not held against MySQL's grammar\n", err)
		return nil
	}
	// What must be refused shows that the gate is shut.
	broken := []statement{{"broken", "SELECT FROM WHERE"}, {"another engine's", "DELETE FROM t WHERE id = 1 RETURNING id"}}
	wrong, err := check(ctx, dir, append(broken, list...))
	if err != nil {
		return err
	}
	if len(wrong) < len(broken) || wrong[0].Name != broken[0].Name || wrong[1].Name != broken[1].Name {
		return fmt.Errorf("the grammar takes what it must refuse: %v", wrong)
	}
	var bad []error
	for _, w := range wrong[len(broken):] {
		bad = append(bad, fmt.Errorf("%s: %s", w.Name, w.Error))
	}
	if err := errors.Join(bad...); err != nil {
		return err
	}
	fmt.Printf("# %d statements are in MySQL's grammar\n", len(list))
	return nil
}

var (
	repeated = regexp.MustCompile(`(?s)\[\[(.*?)\|(.*?)\]\]`)
	argument = regexp.MustCompile(`[?#]\d+`)
	listed   = regexp.MustCompile(`#\d+\.\.`)
)

// statements are the schema's, and those of the scripts in dir as a driver sends
// them, what stands for each row twice.
func statements(dir string) (list []statement, err error) {
	steps, err := schema.Steps(schema.MySQL, schema.Names{})
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		for _, text := range step.Statements {
			list = append(list, statement{step.Name, text})
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no statements in %s: %w", dir, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		for _, part := range strings.Split(string(text), ";;") {
			part = strings.TrimSpace(part)
			part = strings.TrimPrefix(strings.TrimPrefix(part, "> "), "if ")
			part = repeated.ReplaceAllString(part, "$2$1$2")
			part = listed.ReplaceAllString(part, "?, ?")
			list = append(list, statement{strings.TrimSuffix(filepath.Base(f), ".sql"), argument.ReplaceAllString(part, "?")})
		}
	}
	return list, nil
}

func install(ctx context.Context, dir string) error {
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is not installed", name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, npmTimeout)
	defer cancel()
	args := []string{"install", "--prefix", ".", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1"}
	cmd := exec.CommandContext(ctx, "npm", append(args, packages...)...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("npm did not answer with the packages: %w", err)
	}
	return nil
}

// check returns the statements that are refused, in their order.
func check(ctx context.Context, dir string, list []statement) (wrong []refusal, err error) {
	file := filepath.Join(dir, "check.js")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Text += ";"
	}
	in, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "node", file)
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run the parser: %w", err)
	}
	return wrong, json.Unmarshal(out, &wrong)
}
