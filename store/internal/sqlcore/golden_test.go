package sqlcore

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/store/schema"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// statements are the expanded texts of a dialect by name; of a limited one, the
// text for 32 rows.
func statements(d *Dialect, n schema.Names) map[string]string {
	out := map[string]string{}
	v := reflect.ValueOf(d.expand(n)).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch f := v.Field(i).Interface().(type) {
		case string:
			out[name] = f
		case limited:
			out[name], _ = f.at(32)
		}
	}
	return out
}

// TestStatementsAreGolden shows every change of a statement as a change of a
// file that a reviewer reads.
func TestStatementsAreGolden(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		dir := filepath.Join("testdata", string(d.engine))
		found := statements(d, schema.Names{})
		if *update {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.sql"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if found[strings.TrimSuffix(filepath.Base(f), ".sql")] == "" {
				t.Errorf("%s has no statement any more: run with -update", f)
			}
		}
		for name, text := range found {
			if text == "" {
				continue
			}
			file := filepath.Join(dir, name+".sql")
			if *update {
				if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Errorf("%v: run with -update", err)
			} else if string(want) != text+"\n" {
				t.Errorf("%s: the statement has changed: run with -update and read the difference:\n%s", file, text)
			}
		}
	}
}

// optional are statements that an engine may do without.
var optional = map[string][]string{
	"PostgreSQL": {"TryRights", "Whom", "KeyPrevs", "KeysAbove", "KeyPrevsAbove", "Unfit", "Foreign", "DropInbox", "SettleSpan", "SettleAll", "Unlock", "LockRoutes"},
	"SQLite":     {"ReadOnly", "Whom", "Rights", "KeyPrevs", "KeysAbove", "KeyPrevsAbove", "Unfit", "Foreign", "DropInbox", "BodyPart", "HasSchema", "QueueOne", "QueueMany", "Where", "Lock", "Unlock", "SettleAll", "SettleMarked", "SettleAt", "SettleMarkedAt", "LockRoutes"},
	"MySQL":      {"Rights", "EnlistOne", "EnlistMany", "Where", "SettleSpan", "SettleMarked", "SettleAt", "SettleMarkedAt", "LockRoutes"},
	"Oracle":     {"Rights", "EnlistOne", "EnlistMany", "Where", "Unfit", "Lock", "Unlock", "KeyPrevs", "KeysAbove", "KeyPrevsAbove", "SettleSpan", "SettleMarked", "SettleAt", "SettleMarkedAt"},
	"SQL Server": {"KeysAbove", "TryRights", "Whom", "LockRoutes", "EnlistOne", "EnlistMany", "QueueOne", "DeferOne", "Unfit", "Foreign", "Where", "Unlock", "SettleSpan", "SettleAll", "SettleAt", "SettleMarkedAt", "DropInbox"},
}

func TestDialectsAreComplete(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		for name, text := range statements(d, schema.Names{}) {
			if (text == "") != slices.Contains(optional[d.name], name) {
				t.Errorf("%s: statement %s is %q", d, name, text)
			}
			if strings.Contains(text, "{") {
				t.Errorf("%s: statement %s has a placeholder left: %s", d, name, text)
			}
		}
		if d.begin == "" || d.rows == nil || d.id == nil || d.lanes == nil || d.missing == nil || d.busy == nil || d.prepare == nil {
			t.Errorf("%s lacks a part", d)
		}
		if d.String() == "" || !slices.Contains(schema.Engines(), string(d.engine)) {
			t.Errorf("dialect %q has the engine %q", d, d.engine)
		}
	}
}

var indexes = regexp.MustCompile(`INDEX \([^)]*\)`)

// TestStatementsNameNoTableBare finds names that escape the prefix and schema.
func TestStatementsNameNoTableBare(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		n := schema.Names{Prefix: "zz_"}
		open, close := `"`, `"`
		switch d {
		case MySQL:
			open, close = "`", "`"
		case SQLServer:
			open, close = "[", "]"
		}
		if d != SQLite {
			n.Schema = "ss"
		}
		for name, text := range statements(d, n) {
			for _, table := range schema.Tables() {
				re := regexp.MustCompile("(?i)(FROM|JOIN|INTO|UPDATE|USING)\\s+[\"`[]?" + table + `\b`)
				if m := re.FindString(text); m != "" {
					t.Errorf("%s: statement %s names a table without its prefix: %s", d, name, m)
				}
			}
			if strings.Contains(text, "postrider_") {
				t.Errorf("%s: statement %s ignores the prefix: %s", d, name, text)
			}
			if n.Schema != "" && strings.Count(indexes.ReplaceAllString(text, ""), open+"zz_") != strings.Count(text, open+"ss"+close+"."+open+"zz_") {
				t.Errorf("%s: statement %s ignores the schema: %s", d, name, text)
			}
		}
	}
}

// TestLimitsAreLiteral keeps plans from depending on a parameter: a generic
// plan of LIMIT $1 reads a tenth of the table.
func TestLimitsAreLiteral(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		texts := d.expand(schema.Names{})
		v := reflect.ValueOf(texts).Elem()
		for i := range v.NumField() {
			f, ok := v.Field(i).Interface().(limited)
			if !ok {
				continue
			}
			seen := map[string]bool{}
			for _, text := range f {
				if !regexp.MustCompile(`LIMIT \d+|TOP \(\d+\)|FETCH (FIRST|NEXT) \d+ ROWS`).MatchString(text) {
					t.Errorf("%s: statement %s has no literal limit: %s", d, v.Type().Field(i).Name, text)
				}
				seen[text] = true
			}
			if len(seen) != len(f) {
				t.Errorf("%s: statement %s has %d texts for %d limits", d, v.Type().Field(i).Name, len(seen), len(f))
			}
		}
	}
}

// TestPageForAuthors: the files, fields and statements that docs/adding-an-engine.md
// names are there, of every engine, and its lists have every engine that is started.
func TestPageForAuthors(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "adding-an-engine.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"pos": true, "u": true, "engines": true, "dialects": true, "onAll": true, "sqlstore": true, "New": true, "Enlist": true}
	for _, typ := range []reflect.Type{reflect.TypeFor[Dialect](), reflect.TypeFor[texts]()} {
		known[typ.Name()] = true
		for i := range typ.NumField() {
			known[typ.Field(i).Name] = true
		}
	}
	plain, path := regexp.MustCompile(`^[A-Za-z]+$`), regexp.MustCompile(`^[a-z0-9_<>/-]+/[a-z0-9_<>./-]*$|_test\.go$|^\w+\.go$`)
	paths := 0
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(string(page), -1) {
		name := m[1]
		if plain.MatchString(name) && !known[name] {
			t.Errorf("the page names %s, which is no field and no statement", name)
		}
		if !path.MatchString(name) {
			continue
		}
		paths++
		of := dialects
		if strings.Contains(name, "recording") {
			of = []*Dialect{Oracle, SQLServer} // those without a server
		}
		for _, d := range of {
			file := strings.ReplaceAll(name, "<engine>", string(d.engine))
			there := slices.ContainsFunc([]string{root, ".", filepath.Join(root, "integration", "recording"), filepath.Join(root, "integration", "sqlstore")}, func(dir string) bool {
				text, err := os.ReadFile(filepath.Join(dir, file))
				if err == nil && strings.HasPrefix(file, "integration/") && strings.HasSuffix(file, "_test.go") &&
					slices.Contains([]*Dialect{PostgreSQL, SQLite, MySQL}, d) && !regexp.MustCompile(`sqlstore\.`+d.name+`\b`).Match(text) {
					t.Errorf("the list in %s lacks %s", file, d)
				}
				info, err := os.Stat(filepath.Join(dir, file))
				return err == nil && info.IsDir() == (filepath.Ext(file) == "")
			})
			if !there {
				t.Errorf("the page names %s, which is not there", file)
			}
		}
	}
	if paths < 20 {
		t.Errorf("the page names %d files and folders, want 20 at least", paths)
	}
}
