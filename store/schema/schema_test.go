package schema

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var all = []Engine{PostgreSQL, SQLite, MySQL, Oracle, SQLServer}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		n    Names
		e    Engine
		says string // "" = valid
	}{
		{Names{}, PostgreSQL, ""},
		{Names{}, SQLite, ""},
		{Names{Schema: "Shop_2", Prefix: "_Ob9_"}, PostgreSQL, ""},
		{Names{Prefix: strings.Repeat("x", MaxPrefix)}, PostgreSQL, ""},
		{Names{Schema: strings.Repeat("s", 63)}, PostgreSQL, ""},
		{Names{Schema: strings.Repeat("s", 64)}, PostgreSQL, "64 bytes, limit 63"},
		{Names{Prefix: strings.Repeat("x", MaxPrefix+1)}, SQLite, "33 bytes, limit 32"},
		{Names{Schema: "main"}, SQLite, "has no schemas"},
		{Names{Prefix: `a"b`}, PostgreSQL, `'"' at 1`},
		{Names{Prefix: "1a"}, SQLite, `'1' at 0`},
		{Names{Schema: "a.b"}, PostgreSQL, `'.' at 1`},
		{Names{Schema: "\u00fc"}, PostgreSQL, "at 0"},
		{Names{Prefix: "a\n"}, PostgreSQL, "at 1"},
		{Names{}, "mongo", `"mongo" is unknown`},
	} {
		err := tc.n.Validate(tc.e)
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%+v on %s: %v", tc.n, tc.e, err)
		case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%+v on %s: got %v, want %q", tc.n, tc.e, err, tc.says)
		}
		if _, serr := Script(tc.e, tc.n); (serr == nil) != (err == nil) {
			t.Errorf("Script of %+v on %s: got %v, Validate says %v", tc.n, tc.e, serr, err)
		}
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	n := Names{Schema: "s", Prefix: "p_"}
	const text = `{outbox} {=outbox_key} {'outbox_pos} {~meta} {} {1} {LIMIT} '{}' {a b} {=} {==x} {x`
	const want = `"s"."p_outbox" "p_outbox_key" '"s"."p_outbox_pos"' 'p_meta' {} {1} {LIMIT} '{}' {a b} {=} {==x} {x`
	if got := n.Expand(PostgreSQL, text); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	for _, e := range all {
		steps, err := Steps(e, Names{})
		if err != nil {
			t.Fatal(err)
		}
		if len(steps) != Version || steps[len(steps)-1].Version != Version {
			t.Errorf("%s: %d steps, this program's version is %d", e, len(steps), Version)
		}
		created := regexp.MustCompile("^CREATE TABLE (?:IF NOT EXISTS )?[\"`[]postrider_(\\w+)[\"`\\]]")
		var tables []string
		for _, s := range steps {
			if !strings.HasPrefix(s.Text, "-- +goose Up\n") {
				t.Errorf("%s: %s does not begin with goose's comment", e, s.Name)
			}
			if regexp.MustCompile(`(?i)goose Down|DROP TABLE`).MatchString(s.Text) {
				t.Errorf("%s: %s could delete undelivered rows", e, s.Name)
			}
			for _, stmt := range s.Statements {
				if strings.TrimSpace(stmt) == "" || strings.HasSuffix(stmt, ";") || !regexp.MustCompile(`^(CREATE|INSERT|ALTER|UPDATE) `).MatchString(stmt) {
					t.Errorf("%s: %s is cut wrongly: %q", e, s.Name, stmt)
				}
				if m := created.FindStringSubmatch(stmt); m != nil {
					tables = append(tables, m[1])
				}
			}
		}
		if !slices.Equal(tables, Tables()) {
			t.Errorf("%s: tables %v, want %v", e, tables, Tables())
		}
	}
}

// TestLongestNameFits: an engine that cuts names would make two of them one.
func TestLongestNameFits(t *testing.T) {
	t.Parallel()
	for _, e := range all {
		script, err := Script(e, Names{Prefix: strings.Repeat("x", MaxPrefix)})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("[\"`[]([^\"`\\[\\]]+)[\"`\\]]").FindAllStringSubmatch(script, -1) {
			if len(name[1]) > engines[e].maxName {
				t.Errorf("%s: name %s has %d bytes, limit %d", e, name[1], len(name[1]), engines[e].maxName)
			}
		}
	}
}

func TestScriptCreatesTheSchemaFirst(t *testing.T) {
	t.Parallel()
	script, err := Script(PostgreSQL, Names{Schema: "Shop"})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(script, "-- +goose Up\nCREATE SCHEMA IF NOT EXISTS \"Shop\";\n") {
		t.Errorf("the script begins with %.80q", script)
	}
	if strings.Contains(script, "{") {
		t.Error("the script has a placeholder left")
	}
}
