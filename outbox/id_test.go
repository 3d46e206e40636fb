package outbox_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/postrider/postrider/outbox"
)

func TestNewIDIncreases(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 5_000
	runs := make([][]outbox.ID, goroutines)
	var wg sync.WaitGroup
	for g := range runs {
		wg.Go(func() {
			for range each {
				runs[g] = append(runs[g], outbox.NewID())
			}
		})
	}
	wg.Wait()
	seen := make(map[outbox.ID]bool, goroutines*each)
	for _, run := range runs {
		for i, id := range run {
			if id.Version() != 7 || id.Variant() != uuid.RFC4122 {
				t.Fatalf("%s is not a UUIDv7", id)
			}
			if seen[id] {
				t.Fatalf("%s was made twice", id)
			}
			seen[id] = true
			if i > 0 && bytes.Compare(run[i-1][:], id[:]) >= 0 {
				t.Fatalf("%s after %s: not increasing", id, run[i-1])
			}
		}
	}
	last := outbox.NewID()
	for id := range seen {
		if bytes.Compare(id[:], last[:]) >= 0 {
			t.Fatalf("%s, made later, is not above %s of another goroutine", last, id)
		}
	}
}

func TestNewToken(t *testing.T) {
	t.Parallel()
	seen := map[outbox.Token]bool{{}: true}
	for range 1000 {
		tok := outbox.NewToken()
		if seen[tok] {
			t.Fatalf("token %x is zero or came twice", tok)
		}
		seen[tok] = true
	}
}

func TestParseID(t *testing.T) {
	t.Parallel()
	const canonical = "01890a5d-ac96-774b-bcce-b302099a8057"
	for _, s := range []string{canonical, strings.ToUpper(canonical)} {
		id, err := outbox.ParseID(s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if id.String() != canonical {
			t.Fatalf("%s read as %s", s, id)
		}
	}
	for name, s := range map[string]string{
		"empty":           "",
		"nil uuid":        "00000000-0000-0000-0000-000000000000",
		"version 4":       "01890a5d-ac96-474b-bcce-b302099a8057",
		"another variant": "01890a5d-ac96-774b-ccce-b302099a8057",
		"no hyphens":      strings.ReplaceAll(canonical, "-", ""),
		"braces":          "{" + canonical + "}",
		"urn":             "urn:uuid:" + canonical,
		"space":           " " + canonical[1:],
		"letter g":        "g" + canonical[1:],
		"moved hyphen":    "01890a5da-c96-774b-bcce-b302099a8057",
		"newline":         canonical + "\n",
		"long":            strings.Repeat("a", 1<<16),
	} {
		id, err := outbox.ParseID(s)
		if !errors.Is(err, outbox.ErrInvalidArgument) || id != (outbox.ID{}) {
			t.Errorf("%s: %s, %v, want ErrInvalidArgument", name, id, err)
		} else if len(err.Error()) > 300 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("01890a5d-ac96-774b-bcce-b302099a8057")
	f.Add("01890A5D-AC96-774B-BCCE-B302099A8057")
	f.Add("{01890a5d-ac96-774b-bcce-b302099a80}")
	f.Add("urn:uuid:01890a5d-ac96-774b-bcce-b302")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := outbox.ParseID(s)
		if err != nil {
			if !errors.Is(err, outbox.ErrInvalidArgument) || id != (outbox.ID{}) {
				t.Fatalf("%q: %s, %v", s, id, err)
			}
			return
		}
		if id.Version() != 7 || id.Variant() != uuid.RFC4122 || !strings.EqualFold(id.String(), s) {
			t.Fatalf("%q was accepted as %s", s, id)
		}
	})
}
