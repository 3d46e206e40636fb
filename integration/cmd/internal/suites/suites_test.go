package suites

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestTree is what TestSkip leaves parts of out.
func TestTree(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Run("this", func(*testing.T) {})
			t.Run("that", func(*testing.T) {})
		})
	}
}

func TestTrunk(*testing.T) {}

// Each pattern leaves out what it names, whatever stands before it.
func TestSkip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		skip []string
		want string
	}{
		{nil, "TestTrunk TestTree TestTree/one TestTree/one/this TestTree/one/that TestTree/two TestTree/two/this TestTree/two/that"},
		{[]string{"//^this$", "/^two$", "TestTrunk"}, "TestTree TestTree/one TestTree/one/that"},
		{[]string{"TestTree/one", "//that", "/none", "Trunk"}, "TestTree TestTree/two TestTree/two/this"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^(TestTree|TestTrunk)$", Suite{Skip: c.skip}.skip())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var ran []string
		for line := range strings.Lines(string(out)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "=== RUN "); ok {
				ran = append(ran, strings.TrimSpace(name))
			}
		}
		want := strings.Fields(c.want)
		slices.Sort(ran)
		slices.Sort(want)
		if !slices.Equal(ran, want) {
			t.Errorf("without %q ran %q, want %q", c.skip, ran, want)
		}
	}
}
