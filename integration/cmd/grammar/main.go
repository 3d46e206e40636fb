// Command grammar is `make grammar`: it holds every statement and the schema of some
// engines against the grammar of each, for these run where the tests do not. The
// parsers come from npm, into a directory that goes at the end; no script of a
// package is run.
//
// A grammar knows no table and no lock: what it takes can still be wrong. What it
// refuses is.
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
	"slices"
	"strconv"
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

// engine is what is held against one grammar.
type engine struct {
	name    string
	schema  schema.Engine // the name of its folder of golden statements, too
	grammar string        // as check.js names it
	// mark stands before an argument's number in statements that are made of
	// scripts; "" is a ? alone.
	mark string
	// rewrite are pairs of what the grammar does not know, though the engine does, and
	// of something alike that it knows.
	rewrite []rewrite
	// good and broken show that the gate lets through what it must, and nothing else.
	good, broken []statement
}

type rewrite struct {
	is *regexp.Regexp
	as string
}

var engines = []engine{
	{
		name: "MySQL", schema: schema.MySQL, grammar: "mysql",
		good:   []statement{{"an upsert", "INSERT INTO t (a) VALUES (?) ON DUPLICATE KEY UPDATE a = 1"}},
		broken: []statement{{"broken", "SELECT FROM WHERE"}, {"another engine's", "DELETE FROM t WHERE id = 1 RETURNING id"}},
	},
	{
		name: "Oracle", schema: schema.Oracle, grammar: "plsql", mark: ":",
		rewrite: []rewrite{
			// The grammar is older than JSON, lateral joins, defaults of NULL, and an
			// identity's options.
			{regexp.MustCompile(`DEFAULT ON NULL`), "DEFAULT"},
			{regexp.MustCompile(`CROSS APPLY`), "CROSS JOIN"},
			{regexp.MustCompile(`JSON_TABLE\(CAST\((:\d+) AS VARCHAR2\(4000 BYTE\)\), '\$(?:\[\*\])?' COLUMNS \((?:[^()]|\(\d+\))*\)\)`), "(SELECT $1 AS a FROM DUAL)"},
			{regexp.MustCompile(`AS IDENTITY \([A-Z0-9 ]*\)`), "AS IDENTITY"},
		},
		good: []statement{
			{"a block", "BEGIN INSERT INTO t (a) VALUES (:1); EXCEPTION WHEN DUP_VAL_ON_INDEX THEN UPDATE t SET a = :2; END"},
			{"a limit in a sub-select", "SELECT a FROM t WHERE a IN (SELECT a FROM (SELECT a FROM t ORDER BY a FETCH FIRST 5 ROWS ONLY) x) FOR UPDATE SKIP LOCKED"},
		},
		broken: []statement{
			{"broken", "SELECT FROM WHERE"}, {"another engine's", "SELECT a FROM t LIMIT 5"},
			{"an alias with AS", "DELETE FROM t AS u WHERE a = 1"}, {"an upsert of another's", "INSERT INTO t (a) VALUES (:1) ON CONFLICT DO NOTHING"},
		},
	},
	{
		name: "SQL Server", schema: schema.SQLServer, grammar: "tsql",
		rewrite: []rewrite{
			// It has the order of draws for other functions, and no draws.
			{regexp.MustCompile(`NEXT VALUE FOR \S+ OVER`), "ROW_NUMBER() OVER"},
			{regexp.MustCompile(`\(NEXT VALUE FOR \S+\)`), "(1)"},
		},
		good: []statement{{"a table of JSON", "DELETE o OUTPUT deleted.id FROM OPENJSON(@p1) WITH (a INT '$[0]') u JOIN t o WITH (ROWLOCK, FORCESEEK) ON o.a = u.a OPTION (FORCE ORDER)"}},
		broken: []statement{
			{"broken", "SELECT FROM WHERE"}, {"another engine's", "INSERT INTO t (a) VALUES (1) ON CONFLICT DO NOTHING"},
			{"a lock", "SELECT a FROM t WHERE b = 1 FOR UPDATE"},
		},
	},
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
	dir, err := os.MkdirTemp("", "postrider-grammar-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := install(ctx, dir); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Printf("# %v: no statement was held against a grammar\n", err)
		return nil
	}
	var bad []error
	for _, e := range engines {
		list, err := e.statements(filepath.Join(root, "store", "internal", "sqlcore", "testdata", string(e.schema)))
		if err == nil {
			err = e.hold(ctx, dir, list)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", e.name, err))
		}
	}
	return errors.Join(bad...)
}

// hold holds the statements against the engine's grammar.
func (e *engine) hold(ctx context.Context, dir string, list []statement) error {
	probes := append(slices.Clone(e.broken), e.good...)
	wrong, err := check(ctx, dir, e.grammar, append(probes, list...))
	if err != nil {
		return err
	}
	for i, p := range e.broken {
		if len(wrong) <= i || wrong[i].Name != p.Name {
			return fmt.Errorf("the grammar takes what it must refuse: %s", p.Text)
		}
	}
	var bad []error
	for _, w := range wrong[len(e.broken):] {
		bad = append(bad, fmt.Errorf("%s: %s", w.Name, w.Error))
	}
	if err := errors.Join(bad...); err != nil {
		return err
	}
	fmt.Printf("# %s: %d statements are in its grammar\n", e.name, len(list))
	return nil
}

var (
	repeated = regexp.MustCompile(`(?s)\[\[(.*?)\|(.*?)\]\]`)
	parted   = regexp.MustCompile(`(?s)\[<(.*?)\|(.*?)>\]`)
	argument = regexp.MustCompile(`[?#]\d+[$!^]?`)
	listed   = regexp.MustCompile(`#\d+\.\.`)
)

// statements are the schema's, and those of the texts in dir as a driver sends
// them, what stands for each row twice.
func (e *engine) statements(dir string) (list []statement, err error) {
	steps, err := schema.Steps(e.schema, schema.Names{})
	if err != nil {
		return nil, err
	}
	add := func(name, text string) {
		for _, r := range e.rewrite {
			text = r.is.ReplaceAllString(text, r.as)
		}
		list = append(list, statement{name, text})
	}
	for _, step := range steps {
		for _, text := range step.Statements {
			add(step.Name, text)
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
			for _, twice := range []*regexp.Regexp{repeated, parted} {
				part = twice.ReplaceAllString(part, "$2$1$2")
			}
			part = listed.ReplaceAllString(part, "#1, #1")
			n := 0
			part = argument.ReplaceAllStringFunc(part, func(string) string {
				if n++; e.mark == "" {
					return "?"
				}
				return e.mark + strconv.Itoa(n)
			})
			add(strings.TrimSuffix(filepath.Base(f), ".sql"), part)
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
func check(ctx context.Context, dir, grammar string, list []statement) (wrong []refusal, err error) {
	file := filepath.Join(dir, "check.js")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		return nil, err
	}
	request := struct {
		Grammar    string      `json:"grammar"`
		Statements []statement `json:"statements"`
	}{Grammar: grammar}
	for _, s := range list {
		request.Statements = append(request.Statements, statement{s.Name, s.Text + ";"})
	}
	in, err := json.Marshal(request)
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
