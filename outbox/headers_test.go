package outbox_test

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// The stored form is a promise to producers in other languages: these bytes
// stand in the documentation too.
var headerGolden = map[string]struct {
	headers []outbox.Header
	want    string
}{
	"nil":   {nil, ""},
	"empty": {[]outbox.Header{}, ""},
	"one":   {[]outbox.Header{{Name: "X-Shop", Value: []byte("north")}}, "01 00000006 582d53686f70 00000005 6e6f727468"},
	"duplicates, any bytes, empty value": {
		[]outbox.Header{{Name: "a", Value: []byte{0x00, 0xff}}, {Name: "A", Value: []byte{}}, {Name: "a", Value: []byte{0x00, 0xff}}},
		"01 00000001 61 00000002 00ff 00000001 41 00000000 00000001 61 00000002 00ff",
	},
}

func TestHeaderGoldenBytes(t *testing.T) {
	t.Parallel()
	for name, c := range headerGolden {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := hex.DecodeString(strings.ReplaceAll(c.want, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			got := outbox.EncodeHeaders(c.headers)
			if !bytes.Equal(got, want) {
				t.Fatalf("encoded %x, want %x", got, want)
			}
			if len(c.headers) == 0 {
				if got != nil {
					t.Fatalf("no headers are %#v, want nil", got)
				}
				return
			}
			back, err := outbox.DecodeHeaders(want)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(back, c.headers) {
				t.Fatalf("decoded %q, want %q", back, c.headers)
			}
		})
	}
}

func TestHeadersOfNothing(t *testing.T) {
	t.Parallel()
	for _, b := range [][]byte{nil, {}, {1}} {
		hs, err := outbox.DecodeHeaders(b)
		if hs != nil || err != nil {
			t.Errorf("headers of %#v: %v, %v, want nil", b, hs, err)
		}
		xs, err := outbox.DecodeExtensions(b)
		if xs != nil || err != nil {
			t.Errorf("extensions of %#v: %v, %v, want nil", b, xs, err)
		}
	}
}

func TestDecodeRejects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stored, text string }{
		"unknown version":      {"02 00000001 61 00000000", "have version 2, this program reads 1"},
		"zero version":         {"00", "have version 0"},
		"half a name length":   {"01 0000", "2 bytes at offset 1"},
		"name overrun":         {"01 00000002 61", "a name at offset 1 claims 2 bytes, 1 are left"},
		"no value length":      {"01 00000001 61", "0 bytes at offset 6"},
		"value overrun":        {"01 00000001 61 00000003 6262", "a value at offset 6 claims 3 bytes, 2 are left"},
		"length near overflow": {"01 ffffffff 61", "claims 4294967295 bytes"},
		"trailing bytes":       {"01 00000001 61 00000001 62 99", "1 bytes at offset 11"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := hex.DecodeString(strings.ReplaceAll(c.stored, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			hs, err := outbox.DecodeHeaders(b)
			if err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "stored headers") {
				t.Errorf("headers: error %v, want one with %q", err, c.text)
			}
			if hs != nil {
				t.Errorf("headers %q beside an error", hs)
			}
			xs, err := outbox.DecodeExtensions(b)
			if err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "stored extensions") {
				t.Errorf("extensions: error %v, want one with %q", err, c.text)
			}
			if xs != nil {
				t.Errorf("extensions %q beside an error", xs)
			}
		})
	}
}

func TestDecodedHeaderMemory(t *testing.T) {
	t.Parallel()
	b := outbox.EncodeHeaders([]outbox.Header{{Name: "n", Value: []byte("one")}, {Name: "m", Value: []byte("two")}})
	hs, err := outbox.DecodeHeaders(b)
	if err != nil {
		t.Fatal(err)
	}
	// Growing one value must not run into the next one.
	_ = append(hs[0].Value, "XXXXXXXXXXXX"...) // as many bytes as follow it
	if got := string(hs[1].Value); hs[1].Name != "m" || got != "two" {
		t.Fatalf("second header became %q: %q", hs[1].Name, got)
	}
	clear(b)
	if hs[0].Name != "n" {
		t.Errorf("name became %q: names must be copies", hs[0].Name)
	}
	if !bytes.Equal(hs[0].Value, make([]byte, 3)) {
		t.Errorf("value stayed %q: the documentation says that values alias", hs[0].Value)
	}

	in := []outbox.Extension{{Name: "traceid", Value: "x"}, {Name: "region", Value: ""}}
	b = outbox.EncodeExtensions(in)
	xs, err := outbox.DecodeExtensions(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if !reflect.DeepEqual(xs, in) {
		t.Errorf("extensions became %q, want %q: they must be copies", xs, in)
	}
}

// A few bytes that claim gigabytes, and the smallest pairs there are: memory
// stays in proportion to the input.
func TestDecodeAllocatesByInput(t *testing.T) {
	many := append([]byte{1}, make([]byte, 8*10_000)...)
	for name, b := range map[string][]byte{
		"a claim of 4 GiB": {1, 0xff, 0xff, 0xff, 0xff, 'a'},
		"10,000 of 0 + 0":  many,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = outbox.DecodeHeaders(b)
		_, _ = outbox.DecodeExtensions(b)
		runtime.ReadMemStats(&after)
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(16*len(b)+64<<10); got > limit {
			t.Errorf("%s: %d bytes allocated for %d, limit %d", name, got, len(b), limit)
		}
	}
}

func FuzzDecodeHeaders(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{1})
	f.Add(outbox.EncodeHeaders([]outbox.Header{{Name: "a", Value: []byte("b")}, {Name: "a", Value: nil}}))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 'a'})
	f.Add([]byte{1, 0, 0, 0, 1, 'a', 0, 0, 0, 9, 'b'})
	f.Fuzz(func(t *testing.T, b []byte) {
		given := bytes.Clone(b)
		hs, err := outbox.DecodeHeaders(b)
		xs, xerr := outbox.DecodeExtensions(b)
		if (err == nil) != (xerr == nil) {
			t.Fatalf("headers: %v, extensions: %v", err, xerr)
		}
		if !bytes.Equal(b, given) {
			t.Fatalf("decoding changed its input to %x", b)
		}
		if err != nil {
			if hs != nil || xs != nil {
				t.Fatal("values beside an error")
			}
			return
		}
		want := b
		if len(hs) == 0 {
			want = nil // nothing and a bare version byte are both "none"
			if len(b) > 1 {
				t.Fatalf("%x decoded to no headers", b)
			}
		}
		if got := outbox.EncodeHeaders(hs); !bytes.Equal(got, want) {
			t.Fatalf("headers came back as %x, were %x", got, want)
		}
		if got := outbox.EncodeExtensions(xs); !bytes.Equal(got, want) {
			t.Fatalf("extensions came back as %x, were %x", got, want)
		}
	})
}
