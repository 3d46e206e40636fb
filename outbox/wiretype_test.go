package outbox_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/outbox"
)

func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	ts := shopTypes(t)
	codec := outbox.JSON[placed]()
	for name, c := range map[string]struct {
		err  error
		text string
	}{
		"empty name":       {outbox.Register(ts, "", 1, codec), "name is empty"},
		"version 0":        {outbox.Register(ts, "x", 0, codec), "version is 0"},
		"negative version": {outbox.Register(ts, "x", -1, codec), "version is -1"},
		"duplicate":        {outbox.Register(ts, "shop.order.placed", 1, outbox.JSON[note]()), "registered already, for outbox_test.placed"},
		"no encode":        {outbox.Register(ts, "x", 1, outbox.Codec[placed]{Decode: codec.Decode}), "both Encode and Decode"},
		"no decode":        {outbox.Register(ts, "x", 1, outbox.Codec[placed]{Encode: codec.Encode}), "both Encode and Decode"},
		"no set":           {outbox.Register(nil, "x", 1, codec), "outbox.NewTypes"},
		"zero set":         {outbox.Register(&outbox.Types{}, "x", 1, codec), "outbox.NewTypes"},
		"control byte":     {outbox.Register(ts, "x\n", 1, codec), "control byte"},
		"long name":        {outbox.Register(ts, strings.Repeat("x", 253), 1, codec), "limit 255"},
		"bad content type": {outbox.Register(ts, "x", 1, outbox.Codec[placed]{ContentType: "a\x00", Encode: codec.Encode, Decode: codec.Decode}), "content type"},
	} {
		if !errors.Is(c.err, outbox.ErrInvalidArgument) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%s: %v, want ErrInvalidArgument with %q", name, c.err, c.text)
		}
	}
	// None of it is registered, and what was registered stays.
	if _, err := outbox.Decode[placed](ts, "x.v1", []byte("{}")); !errors.Is(err, outbox.ErrUnknownType) {
		t.Errorf("x.v1 after refusals: %v, want ErrUnknownType", err)
	}
	if got, err := outbox.Decode[placed](ts, "shop.order.placed.v1", []byte(`{"order":4}`)); err != nil || got.Order != 4 {
		t.Errorf("after refusals: %v, %v", got, err)
	}
	if err := outbox.Register(ts, strings.Repeat("x", 252), 1, codec); err != nil {
		t.Errorf("a wire type of 255 bytes: %v", err)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	ts := shopTypes(t)
	if got, err := outbox.Decode[*placed](ts, "shop.order.pointer.v1", []byte(`{"order":7}`)); err != nil || got.Order != 7 {
		t.Errorf("pointer: %v, %v", got, err)
	}
	if got, err := outbox.Decode[note](ts, "shop.note.v2", []byte(`{"Text":"a"}`)); err != nil || got.Text != "a" {
		t.Errorf("second version: %v, %v", got, err)
	}

	_, err := outbox.Decode[placed](ts, "shop.order.placed.v2", nil)
	if !errors.Is(err, outbox.ErrUnknownType) || !strings.Contains(err.Error(), `"shop.order.placed.v2"`) ||
		!strings.Contains(err.Error(), "shop.order.placed.v1 (outbox_test.placed)") {
		t.Errorf("unknown version: %v, want ErrUnknownType with the list", err)
	}
	if _, err := outbox.Decode[placed](nil, "x", nil); !errors.Is(err, outbox.ErrUnknownType) {
		t.Errorf("no set: %v", err)
	}
	if _, err := outbox.Decode[placed](outbox.NewTypes(), "x", nil); !errors.Is(err, outbox.ErrUnknownType) || !strings.Contains(err.Error(), "outbox.Register") {
		t.Errorf("empty set: %v, want the remedy", err)
	}
	_, err = outbox.Decode[note](ts, "shop.order.placed.v1", []byte("{}"))
	if !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "outbox_test.placed, not to outbox_test.note") {
		t.Errorf("another Go type: %v", err)
	}
	got, err := outbox.Decode[placed](ts, "shop.order.placed.v1", []byte(`{"order":7,"note":3}`))
	if err == nil || got != (placed{}) || !strings.Contains(err.Error(), "shop.order.placed.v1") {
		t.Errorf("a bad body: %v, %v, want the zero value and an error", got, err)
	}
}

func TestDecodePanicIsAnError(t *testing.T) {
	t.Parallel()
	ts := outbox.NewTypes()
	cause := errors.New("index out of range")
	c := outbox.JSON[placed]()
	c.Decode = func(b []byte) (placed, error) {
		if len(b) == 0 {
			panic(cause)
		}
		panic("short")
	}
	if err := outbox.Register(ts, "x", 1, c); err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.Decode[placed](ts, "x.v1", nil); !errors.Is(err, cause) || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("panic with an error: %v", err)
	}
	if _, err := outbox.Decode[placed](ts, "x.v1", []byte("1")); err == nil || !strings.Contains(err.Error(), "panicked: short") {
		t.Errorf("panic with a text: %v", err)
	}
}

func TestBytesCodec(t *testing.T) {
	t.Parallel()
	c := outbox.Bytes("text/plain")
	for _, in := range [][]byte{nil, {}, []byte("x")} {
		enc, err := c.Encode(in)
		if err != nil || string(enc) != string(in) || (enc == nil) != (in == nil) {
			t.Errorf("%#v encoded to %#v, %v", in, enc, err)
		}
		dec, err := c.Decode(enc)
		if err != nil || string(dec) != string(in) || (dec == nil) != (in == nil) {
			t.Errorf("%#v decoded to %#v, %v", in, dec, err)
		}
	}
}

func TestTypesListIsBounded(t *testing.T) {
	t.Parallel()
	ts := outbox.NewTypes()
	for i := range 60 {
		if err := outbox.Register(ts, fmt.Sprintf("t%02d", i), 1, outbox.JSON[placed]()); err != nil {
			t.Fatal(err)
		}
	}
	_, err := outbox.Decode[placed](ts, "x", nil)
	if text := err.Error(); !strings.Contains(text, "t49.v1") || strings.Contains(text, "t50.v1") || !strings.Contains(text, "and 10 more") {
		t.Errorf("60 types: %v", err)
	}
}

// Types may be added while others publish and decode: of several that register
// one wire type, one wins.
func TestTypesAreConcurrent(t *testing.T) {
	t.Parallel()
	ts := outbox.NewTypes()
	var wg sync.WaitGroup
	var mu sync.Mutex
	wins := 0
	for range 8 {
		wg.Go(func() {
			for v := 1; v <= 100; v++ {
				if outbox.Register(ts, "x", v, outbox.JSON[placed]()) == nil {
					mu.Lock()
					wins++
					mu.Unlock()
				}
				if _, err := outbox.Decode[placed](ts, fmt.Sprintf("x.v%d", v), []byte("{}")); err != nil {
					t.Errorf("version %d: %v", v, err)
				}
			}
		})
	}
	wg.Wait()
	if wins != 100 {
		t.Errorf("%d registrations succeeded, want 100", wins)
	}
}
