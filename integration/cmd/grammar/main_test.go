package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/postrider/postrider/store/schema"
)

// A script is taken apart into statements as a driver sends them.
func TestStatements(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const text = "if SELECT ?1\n;; > SELECT [[, |(#1, ?2)]]\n;; DELETE FROM t WHERE a = ?10\n;; SELECT [< UNION |F(?1)>], #2$"
	if err := os.WriteFile(filepath.Join(dir, "Both.sql"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e := engine{schema: schema.MySQL, mark: ":", rewrite: []rewrite{{regexp.MustCompile(`DELETE (FROM)`), "$1"}}}
	list, err := e.statements(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list {
		if s.Name == "Both" {
			got = append(got, s.Text)
		}
	}
	if want := []string{"SELECT :1", "SELECT (:1, :2), (:3, :4)", "FROM t WHERE a = :1", "SELECT F(:1) UNION F(:2), :3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(list) < 10 {
		t.Error("the schema is missing")
	}
	if _, err := e.statements(t.TempDir()); err == nil {
		t.Error("a directory without statements passed")
	}
}
