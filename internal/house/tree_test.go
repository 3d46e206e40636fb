package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const modulePath = "github.com/postrider/postrider"

// root is the top of the repository, seen from this package.
const root = "../.."

// files are the slash-separated paths of all files of the repository.
var files = sync.OnceValues(func() (paths []string, err error) {
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == ".bin" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			paths = append(paths, filepath.ToSlash(rel))
		}
		return nil
	})
	return paths, err
})

func tree(t *testing.T) []string {
	t.Helper()
	paths, err := files()
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func read(t *testing.T, p string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// goFile is one parsed source file.
type goFile struct {
	path string
	ast  *ast.File
}

func (f goFile) dir() string  { return path.Dir(f.path) }
func (f goFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

var parsed = sync.OnceValues(func() (out []goFile, err error) {
	paths, err := files()
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	for _, p := range paths {
		if !strings.HasSuffix(p, ".go") {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(root, filepath.FromSlash(p)), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		out = append(out, goFile{p, f})
	}
	return out, nil
})

func sources(t *testing.T) []goFile {
	t.Helper()
	out, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// goMod is what the rules look at in a go.mod or go.work file.
type goMod struct {
	directive string
	toolchain bool
	requires  []string
	uses      []string
}

func readMod(t *testing.T, p string) (m goMod) {
	t.Helper()
	block := ""
	for line := range strings.Lines(read(t, p)) {
		line, _, _ = strings.Cut(line, "//")
		w := strings.Fields(line)
		switch {
		case len(w) == 0:
			continue
		case w[0] == ")":
			block = ""
			continue
		case len(w) == 2 && w[1] == "(":
			block = w[0]
			continue
		case block != "":
			w = append([]string{block}, w...)
		}
		switch w[0] {
		case "go":
			m.directive = w[1]
		case "toolchain":
			m.toolchain = true
		case "require":
			m.requires = append(m.requires, w[1])
		case "use":
			m.uses = append(m.uses, path.Clean(w[1]))
		}
	}
	return m
}

// outside are the modules outside the workspace: a program as a user would have it, and
// the suites with a driver in another version.
var outside = []string{"integration/consumer", "integration/sqlite335"}

func modules(t *testing.T) (dirs []string) {
	t.Helper()
	for line := range strings.Lines(read(t, "modules.txt")) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			dirs = append(dirs, line)
		}
	}
	return dirs
}

// goModFiles are the go.mod files that exist.
func goModFiles(t *testing.T) (paths []string) {
	for _, p := range tree(t) {
		if path.Base(p) == "go.mod" {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}
