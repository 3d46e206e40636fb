package outbox_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Producers in other languages test themselves against the documentation, so
// its vectors must be those of this package's tests.
func TestDocumentedVectors(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/external-producers.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, v := range keyVectors {
		hex := fmt.Sprintf("`%x`", v.key)
		if len(v.key) > 64 {
			hex = fmt.Sprintf("`%x` %d times", v.key[:1], len(v.key))
		}
		numbers := fmt.Sprintf("| %d | %d | %d | %d | %d |", v.hash, v.lane[0], v.lane[1], v.lane[2], v.lane[3])
		found := false
		for line := range strings.Lines(doc) {
			found = found || strings.HasPrefix(line, "| "+hex) && strings.HasSuffix(strings.TrimSpace(line), numbers)
		}
		if !found {
			t.Errorf("no line with %s and %s", hex, numbers)
		}
	}
	for _, stored := range headerGolden {
		if stored.want != "" && !strings.Contains(doc, "`"+stored.want+"`") {
			t.Errorf("the stored headers %q are not documented", stored.want)
		}
	}
}
