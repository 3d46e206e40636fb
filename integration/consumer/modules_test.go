package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite modules.golden")

// The most modules that a user of one store and one broker may get.
const limit = 30

const golden = "modules.golden"

// TestModules holds what this program pulls in against the golden list: a
// dependency comes in because somebody meant it to.
func TestModules(t *testing.T) {
	out := goTool(t, "list", "-m", "all")
	got := strings.Split(strings.TrimSpace(out), "\n")
	if len(got) > limit {
		t.Errorf("%d modules, limit %d: move what brings them into a module of its own\n%s", len(got), limit, out)
	}
	for _, m := range got {
		if strings.Contains(m, "nats-server") || strings.Contains(m, "pgx") || strings.Contains(m, "sqlite") {
			t.Errorf("module %s: servers and drivers belong to the tests", m)
		}
	}
	compare(t, got)
}

func compare(t *testing.T, got []string) {
	t.Helper()
	text := []byte(strings.Join(got, "\n") + "\n")
	if *update {
		if err := os.WriteFile(golden, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if bytes.Equal(text, want) {
		return
	}
	old := strings.Split(strings.TrimSpace(string(want)), "\n")
	for _, m := range got {
		if !slices.Contains(old, m) {
			t.Errorf("new: %s", m)
		}
	}
	for _, m := range old {
		if !slices.Contains(got, m) {
			t.Errorf("gone: %s", m)
		}
	}
	t.Errorf("%s differs: if the change is meant, run GOWORK=off go test -update in integration/consumer and commit the file", golden)
}

func goTool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}
