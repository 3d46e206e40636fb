// Command engines is `make engines`: it runs the conformance suites of the stores
// and of the inbox on every engine at hand, and writes the table of
// docs/engines.md from what they say: rule by engine, pass or not run. It exits
// with 1 when a rule failed, and writes nothing then.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/postrider/postrider/integration/testenv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

// suites are packages of integration with conformance suites.
var suites = []string{"./sqlstore", "./pgxstore", "./inbox"}

// tests are those of the suites whose subtests are rules: the second is the inbox of
// pgxstore.
var tests = []string{"TestConformance", "TestInbox"}

func run(ctx context.Context) error {
	root, err := testenv.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "postrider-engines-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	record := filepath.Join(dir, "record")
	args := append([]string{"test", "-json", "-count=1", "-run", "^(" + strings.Join(tests, "|") + ")$"}, suites...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(root, "integration")
	cmd.Env = append(os.Environ(), testenv.EnvRecord+"="+record)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	rules, failed, parseErr := read(bytes.NewReader(out))
	if len(failed) > 0 {
		return fmt.Errorf("rules failed: %s", strings.Join(failed, ", "))
	}
	if err := errors.Join(err, parseErr); err != nil {
		return err
	}
	versions, err := os.ReadFile(record)
	if err != nil {
		return err
	}
	page := filepath.Join(root, "docs", "engines.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err = replace(text, table(rules, engines(string(versions))))
	if err != nil {
		return err
	}
	return os.WriteFile(page, text, 0o644)
}

// results are rules by engine: what the engine's name in the tests is, and the
// rules that passed there.
type results map[string]map[string]bool

// read reads the events of go test -json.
func read(r io.Reader) (rules results, failed []string, err error) {
	rules = results{}
	for dec := json.NewDecoder(r); ; {
		var e struct{ Action, Package, Test string }
		if err := dec.Decode(&e); err == io.EOF {
			return rules, failed, nil
		} else if err != nil {
			return nil, nil, fmt.Errorf("read what go test says: %w", err)
		}
		parts := strings.Split(e.Test, "/")
		if e.Action != "pass" && e.Action != "fail" || len(parts) < 2 || !slices.Contains(tests, parts[0]) {
			continue
		}
		engine := parts[1]
		if strings.HasSuffix(e.Package, "/pgxstore") {
			engine = "pgxstore"
			parts = slices.Insert(parts, 1, engine)
		}
		switch {
		case len(parts) != 3:
		case e.Action == "fail":
			failed = append(failed, engine+" "+parts[2])
		default:
			if rules[engine] == nil {
				rules[engine] = map[string]bool{}
			}
			rules[engine][parts[2]] = true
		}
	}
}

// column is an engine of the table.
type column struct{ title, engine string }

// engines are the columns, the versions being what the suites recorded.
func engines(record string) (columns []column) {
	version := func(engine string) string {
		for line := range strings.Lines(record) {
			if f := strings.Fields(line); len(f) > 2 && f[1] == engine {
				v, _, _ := strings.Cut(f[2], "-")
				if strings.Contains(line, "MariaDB") {
					return "MariaDB " + v
				}
				return v
			}
		}
		return ""
	}
	mysql, mariadb := "MySQL", "MariaDB"
	mysqlRan, mariadbRan := "", ""
	if v := version("mysql"); strings.HasPrefix(v, "MariaDB ") {
		mariadb, mariadbRan = v, "mysql"
	} else if v != "" {
		mysql, mysqlRan = "MySQL "+v, "mysql"
	}
	pg := strings.TrimSpace("PostgreSQL " + version("postgres"))
	return []column{
		{pg, "postgres"}, {pg + ", pgxstore", "pgxstore"}, {mariadb, mariadbRan}, {mysql, mysqlRan},
		{strings.TrimSpace("SQLite " + version("sqlite")), "sqlite"}, {strings.TrimSpace("Oracle " + version("oracle")), "oracle"},
		{strings.TrimSpace("SQL Server " + version("sqlserver")), "sqlserver"},
	}
}

// table is the Markdown.
func table(rules results, columns []column) string {
	all := map[string]bool{}
	for _, passed := range rules {
		maps.Copy(all, passed)
	}
	var b strings.Builder
	b.WriteString("| rule |")
	for _, c := range columns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, rule := range slices.Sorted(maps.Keys(all)) {
		b.WriteString("| " + strings.ReplaceAll(rule, "_", " ") + " |")
		for _, c := range columns {
			if rules[c.engine][rule] {
				b.WriteString(" pass |")
			} else {
				b.WriteString(" not run |")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

const begin, end = "<!-- made by make engines -->\n", "<!-- end -->\n"

// replace puts the table between the marks of the page.
func replace(page []byte, table string) ([]byte, error) {
	head, rest, ok := strings.Cut(string(page), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return nil, fmt.Errorf("docs/engines.md lacks the line %q or %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return []byte(head + begin + table + end + tail), nil
}
