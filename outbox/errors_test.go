package outbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

func TestRowError(t *testing.T) {
	t.Parallel()
	cause := errors.New("headers have version 9")
	e := &outbox.RowError{}
	for range 12 {
		e.IDs = append(e.IDs, outbox.NewID())
		e.Errs = append(e.Errs, fmt.Errorf("decode: %w", cause))
	}
	err := fmt.Errorf("read: %w", e)
	var got *outbox.RowError
	if !errors.As(err, &got) || len(got.IDs) != 12 {
		t.Fatalf("%v does not lead to the *RowError", err)
	}
	if !errors.Is(err, cause) {
		t.Errorf("%v does not lead to the reason of a row", err)
	}
	text := err.Error()
	for i, id := range e.IDs {
		if named := strings.Contains(text, id.String()); named != (i < 10) {
			t.Errorf("row %d named: %t, want the first ten: %s", i, named, text)
		}
	}
	for _, want := range []string{"12 outbox rows", "and 2 more"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if text := (&outbox.RowError{IDs: e.IDs[:1], Errs: e.Errs[:1]}).Error(); strings.Contains(text, "more") {
		t.Errorf("one row: %s", text)
	}
}
