package house

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrow says what the packages of a folder may import of ours. A folder that
// ends in /* includes those below it.
type arrow struct {
	folder string
	may    []string
	all    bool // joins the leaves, and is imported by nobody
}

// arrows are those of ARCHITECTURE.md; the first one that matches counts.
var arrows = []arrow{
	{folder: "outbox"},
	{folder: "inbox"},
	{folder: "store/schema"},
	{folder: "transport", may: []string{"outbox"}},
	{folder: "relay", may: []string{"outbox", "transport"}},
	{folder: "store/internal/sqlcore", may: []string{"outbox", "inbox", "store/schema"}},
	{folder: "store/sqlstore", may: []string{"outbox", "inbox", "store/internal/sqlcore"}},
	{folder: "store/pgxstore", may: []string{"outbox", "inbox", "store/internal/sqlcore"}},
	{folder: "store/storetest", may: []string{"outbox", "inbox"}},
	{folder: "inbox/inboxtest", may: []string{"inbox"}},
	{folder: "transport/transporttest", may: []string{"outbox", "transport"}},
	{folder: "transport/receiver", may: []string{"outbox", "inbox", "transport"}},
	{folder: "transport/*", may: []string{"outbox", "inbox", "transport", "transport/receiver"}},
	{folder: "health", may: []string{"outbox"}},
	{folder: "admin", may: []string{"outbox", "inbox", "relay"}},
	{folder: "otelhooks", may: []string{"outbox", "relay"}},
	{folder: "internal/house"},
	{folder: "cmd/*", all: true},
	{folder: "integration/*", all: true},
	{folder: "bench/*", all: true},
	{folder: "examples/*", all: true},
}

func matches(folder, dir string) bool {
	if prefix, any := strings.CutSuffix(folder, "/*"); any {
		return dir == prefix || strings.HasPrefix(dir, prefix+"/")
	}
	return dir == folder
}

func TestImportArrows(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, f := range sources(t) {
		i := slices.IndexFunc(arrows, func(a arrow) bool { return matches(a.folder, f.dir()) })
		if i < 0 {
			t.Errorf("%s: no arrows are set for this package: add it here and to ARCHITECTURE.md", f.path)
			continue
		}
		for _, imp := range f.ast.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			dir, ours := strings.CutPrefix(p, modulePath+"/")
			if !ours {
				continue
			}
			seen++
			suite := strings.HasSuffix(dir, "test")
			switch {
			case arrows[i].all, dir == f.dir() && f.isTest(), slices.Contains(arrows[i].may, dir):
			case f.isTest() && suite:
			case f.isTest() && inRoot(dir) && inRoot(f.dir()):
			default:
				t.Errorf("%s imports %s: %s may import %v; suites (*test) are for tests", f.path, dir, f.dir(), arrows[i].may)
			}
		}
	}
	if seen == 0 {
		t.Error("no import of our own was found: the test looks at the wrong place")
	}
}

// inRoot tells whether a folder belongs to the root module, which needs no
// driver and no broker.
func inRoot(dir string) bool {
	switch top, _, _ := strings.Cut(dir, "/"); top {
	case "outbox", "inbox", "relay", "health", "admin", "internal":
		return true
	}
	return dir == "transport" || slices.Contains([]string{"transport/transporttest", "transport/receiver", "transport/httptransport", "transport/sqltransport", "store/schema", "store/internal/sqlcore", "store/sqlstore", "store/storetest"}, dir)
}

func TestRootRequiresUUIDOnly(t *testing.T) {
	t.Parallel()
	if got := readMod(t, "go.mod").requires; !slices.Equal(got, []string{"github.com/google/uuid"}) {
		t.Errorf("the root module requires %v, want github.com/google/uuid alone: put the rest into a leaf or integration/", got)
	}
}

func TestLeavesRequireNoServer(t *testing.T) {
	t.Parallel()
	for _, p := range goModFiles(t) {
		if top, _, _ := strings.Cut(p, "/"); slices.Contains([]string{"cmd", "integration", "bench"}, top) {
			continue
		}
		for _, r := range readMod(t, p).requires {
			if strings.Contains(r, "nats-server") || strings.Contains(r, "testify") || strings.Contains(r, "goleak") {
				t.Errorf("%s requires %s: tests that need it live in integration/", p, r)
			}
		}
	}
}

func TestOneGoDirective(t *testing.T) {
	t.Parallel()
	want := readMod(t, "go.mod").directive
	if want == "" {
		t.Fatal("go.mod has no go directive")
	}
	for _, p := range append(goModFiles(t), "go.work") {
		m := readMod(t, p)
		if m.directive != want {
			t.Errorf("%s says go %s, go.mod says go %s", p, m.directive, want)
		}
		if m.toolchain {
			t.Errorf("%s has a toolchain line: the go directive is the only one", p)
		}
	}
}

func TestModuleListsAgree(t *testing.T) {
	t.Parallel()
	listed := modules(t)
	used := readMod(t, "go.work").uses
	var found []string
	for _, p := range goModFiles(t) {
		if dir := path.Dir(p); !slices.Contains(outside, dir) {
			found = append(found, dir)
		}
	}
	slices.Sort(found)
	slices.Sort(listed)
	slices.Sort(used)
	if !slices.Equal(listed, found) {
		t.Errorf("modules.txt has %v, the tree has %v", listed, found)
	}
	if !slices.Equal(listed, used) {
		t.Errorf("modules.txt has %v, go.work has %v", listed, used)
	}
}

func TestFileLength(t *testing.T) {
	t.Parallel()
	const limit = 800
	for _, p := range tree(t) {
		switch path.Ext(p) {
		case ".go", ".sql", ".sh", ".js", ".css", ".html":
			if n := strings.Count(read(t, p), "\n"); n > limit {
				t.Errorf("%s has %d lines, limit %d: split it by subject", p, n, limit)
			}
		}
	}
}

// The project speaks of itself: not of the machine it was written on, nor of
// where somebody fetches packages.
var foreignWords = regexp.MustCompile(`/wor[k]/|/far[m]/|/hom[e]/|(?i:GOPROX[Y]=http|_registr[y]=http|prox[y]\.golang\.org|registr[y]\.npmjs|su[m]\.golang\.org|pyp[i]\.org)`)

func TestSpeaksOfItself(t *testing.T) {
	t.Parallel()
	for _, p := range tree(t) {
		switch path.Ext(p) {
		case ".sum", ".db", ".test", ".png", ".svg":
			continue
		}
		text := read(t, p)
		for _, at := range foreignWords.FindAllStringIndex(text, -1) {
			t.Errorf("%s:%d mentions %q", p, 1+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]])
		}
	}
}

// published tells whether users import the package.
func published(f goFile) bool {
	return !f.isTest() && f.ast.Name.Name != "main" && !slices.Contains(strings.Split(f.dir(), "/"), "internal")
}

func TestPackagesHaveComments(t *testing.T) {
	t.Parallel()
	has := map[string]bool{}
	for _, f := range sources(t) {
		if !f.isTest() && !ast.IsGenerated(f.ast) {
			has[f.dir()] = has[f.dir()] || f.ast.Doc != nil
		}
	}
	for dir, ok := range has {
		if !ok {
			t.Errorf("%s: the package has no comment", dir)
		}
	}
}

func TestExportedHaveComments(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if !published(f) {
			continue
		}
		for _, d := range f.ast.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s: %s has no comment", f.path, name)
			}
		}
	}
}

func undocumented(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) && !wellKnown[d.Name.Name] {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return nil
		}
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				if s.Doc != nil || s.Comment != nil || d.Doc != nil {
					continue
				}
				for _, n := range s.Names {
					if n.IsExported() {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// wellKnown are methods whose meaning an interface of the standard library
// fixes.
var wellKnown = map[string]bool{"Error": true, "Unwrap": true, "Is": true, "As": true, "String": true, "Close": true, "Len": true, "Less": true, "Swap": true}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// A skipped test looks like a passed one. Only testenv may skip, for a server
// that is not there, and CI turns that into a failure. The suites for others
// may too, for a capability that a store does not have.
func TestOnlyTestenvSkips(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if !f.isTest() || f.dir() == "integration/testenv" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if s, ok := call.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "Skip" || s.Sel.Name == "Skipf" || s.Sel.Name == "SkipNow") {
					t.Errorf("%s calls %s: let testenv decide, or make the test run", f.path, s.Sel.Name)
				}
			}
			return true
		})
	}
}
