package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/integration/testenv"
)

var update = flag.Bool("update", false, "write the table of mutants into ARCHITECTURE.md")

// TestTable keeps the patches and the table in ARCHITECTURE.md in step, and
// finds a patch that the source has left behind.
func TestTable(t *testing.T) {
	t.Parallel()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	list, err := load(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| mutant | what is gone | breaks | caught by |\n|---|---|---|---|\n")
	for _, m := range list {
		fmt.Fprintf(&want, "| `%s` | %s | %s | `go test %s` |\n", m.name, m.removes, m.breaks, strings.Join(m.proof, " "))
		cmd := exec.Command("git", "apply", "--check", m.patch)
		cmd.Dir = root
		// A repository around this tree would make git ignore the paths.
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(root))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s does not apply any more: %s", m.patch, out)
		}
	}
	path := filepath.Join(root, "ARCHITECTURE.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- mutants -->\n", "<!-- end of mutants -->\n"
	before, rest, ok := strings.Cut(string(data), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %q and %q", path, begin, end)
	}
	if table == want.String() {
		return
	}
	if !*update {
		t.Fatalf("the table of mutants in ARCHITECTURE.md is not that of %s: write it with go test ./integration/cmd/mutants -update", folder)
	}
	if err := os.WriteFile(path, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRun tries mutants of a little module of its own.
func TestRun(t *testing.T) {
	t.Setenv("GOWORK", "off")
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(name, breaks, old, new string) {
		write(folder+"/"+name+".patch", "Removes: the doubling\nBreaks: "+breaks+"\nProof: .\n\n"+
			"diff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n@@ -1,3 +1,3 @@\n package a\n \n-"+old+"\n+"+new+"\n")
	}
	const source = "func Twice(n int) int { return 2 * n }"
	write("go.mod", "module a\n\ngo 1.26.0\n")
	write("a.go", "package a\n\n"+source+"\n")
	write("a_test.go", "package a\n\nimport \"testing\"\n\nfunc TestTwice(t *testing.T) {\n\tif n := Twice(2); n != 4 {\n\t\tt.Errorf(\"double: %d\", n)\n\t}\n}\n")
	write(".hidden/a_test.go", "this is no Go\n")
	patch("caught", "double", source, "func Twice(n int) int { return n }")
	patch("by-name", "TestTwice", source, "func Twice(n int) int { return n }")
	patch("equal", "double", source, "func Twice(n int) int { return n + n }")
	patch("otherwise", "order", source, "func Twice(n int) int { return n }")
	patch("left-behind", "double", "func Thrice(n int) int { return 3 * n }", source)
	patch("broken", "double", source, "func Twice(n int) int { return m }")

	for name, want := range map[string]string{
		"caught": "", "by-name": "", "equal": "passed", "otherwise": `not on "order"`, "left-behind": "does not apply", "broken": "does not compile",
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), &out, root, false, 1, []string{name})
			if want == "" {
				if err != nil || !strings.Contains(out.String(), "# mutants caught 1/1\n") {
					t.Errorf("got %v\n%s", err, &out)
				}
				return
			}
			if err == nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "# mutants caught 0/1\n") {
				t.Errorf("got %v and\n%swant %q", err, &out, want)
			}
		})
	}
	if err := run(t.Context(), &bytes.Buffer{}, root, false, 1, []string{"none"}); err == nil {
		t.Error("a mutant that does not exist was caught")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	const diff = "\ndiff --git a/a b/a\n"
	for text, ok := range map[string]bool{
		"Removes: a\n b\nBreaks: c\nProof: ./d -run E\nShort: yes\n" + diff: true,
		"Removes: a\nBreaks: c\n" + diff:                                    false,
		"Removes: a\nRemoves: b\nBreaks: c\nProof: d\n" + diff:              false,
		"Removes: a\nWhy: b\nBreaks: c\nProof: d\n" + diff:                  false,
		"Removes: a\nBreaks: c\nProof: d\n":                                 false,
	} {
		path := filepath.Join(t.TempDir(), "m.patch")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := parse(path)
		if (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
		if ok && (m.name != "m" || m.removes != "a b" || m.breaks != "c" || len(m.proof) != 3 || !m.short) {
			t.Errorf("%q: %+v", text, m)
		}
	}
}
