package outbox_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/outbox"
)

// full is a valid record that uses every field.
func full() outbox.Record {
	zone := time.FixedZone("", 2*60*60)
	return outbox.Record{
		ID:        outbox.NewID(),
		Transport: "orders",
		Type:      "shop.order.placed.v1",
		CreatedAt: time.Date(2026, 3, 1, 12, 0, 0, 1999, zone),
		TenantID:  "tenant-7",
		Message: outbox.Message{
			Destination: "shop.orders",
			Headers: []outbox.Header{
				{Name: "X-Trace", Value: []byte{0, 1, 0xff}}, {Name: "x-trace", Value: []byte{}}, {Name: "X-Trace", Value: nil},
			},
			ContentType: "application/json",
			Body:        []byte("{}"),
			Key:         []byte{0, 0xff},
			DeliverAt:   time.Date(2026, 3, 1, 12, 0, 0, 1001, zone),
			Event: outbox.Event{
				Source: "/shop", Subject: "order 7", DataSchema: "https://shop.example/order.json",
				Time:       time.Date(2026, 3, 1, 12, 0, 0, 2999, zone),
				Extensions: []outbox.Extension{{Name: "region", Value: "nörd"}, {Name: "sampled2", Value: ""}},
			},
			Context: outbox.ContextFields{
				CorrelationID: "c", CausationID: "d", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b",
			},
		},
	}
}

func TestNormalizeTimes(t *testing.T) {
	t.Parallel()
	rec := full()
	want := full()
	want.ID = rec.ID
	want.CreatedAt = time.Date(2026, 3, 1, 10, 0, 0, 1000, time.UTC)
	want.Message.Event.Time = time.Date(2026, 3, 1, 10, 0, 0, 2000, time.UTC)
	want.Message.DeliverAt = time.Date(2026, 3, 1, 10, 0, 0, 2000, time.UTC)
	if err := rec.Normalize(0); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rec, want) {
		t.Fatalf("normalized to\n%+v\nwant\n%+v", rec, want)
	}
	if err := rec.Normalize(0); err != nil || !reflect.DeepEqual(rec, want) {
		t.Fatalf("a second time (%v):\n%+v", err, rec)
	}

	// Times that are not set stay so.
	rec = full()
	rec.Message.DeliverAt, rec.Message.Event.Time = time.Time{}, time.Time{}
	if err := rec.Normalize(0); err != nil || !rec.Message.DeliverAt.IsZero() || !rec.Message.Event.Time.IsZero() {
		t.Fatalf("unset times became %v and %v (%v)", rec.Message.DeliverAt, rec.Message.Event.Time, err)
	}
}

func TestNormalizeKeepsNilAndEmptyBody(t *testing.T) {
	t.Parallel()
	for _, body := range [][]byte{nil, {}} {
		rec := full()
		rec.Message.Body = body
		if err := rec.Normalize(0); err != nil || (rec.Message.Body == nil) != (body == nil) {
			t.Errorf("body %#v became %#v (%v)", body, rec.Message.Body, err)
		}
	}
}

// Every limit of a text or key: exactly at it is accepted, one byte more is
// refused by name; so are control bytes and broken UTF-8 in texts.
func TestNormalizeTexts(t *testing.T) {
	t.Parallel()
	const long = 1 << 20
	for _, f := range []struct {
		name     string
		limit    int
		required bool
		set      func(*outbox.Record, string)
	}{
		{"transport", 255, true, func(r *outbox.Record, s string) { r.Transport = s }},
		{"type", 255, true, func(r *outbox.Record, s string) { r.Type = s }},
		{"destination", 1024, true, func(r *outbox.Record, s string) { r.Message.Destination = s }},
		{"tenant", 255, false, func(r *outbox.Record, s string) { r.TenantID = s }},
		{"content type", 255, false, func(r *outbox.Record, s string) { r.Message.ContentType = s }},
		{"CloudEvents source", 1024, true, func(r *outbox.Record, s string) { r.Message.Event.Source = s }},
		{"CloudEvents subject", 1024, false, func(r *outbox.Record, s string) { r.Message.Event.Subject = s }},
		{"CloudEvents dataschema", 1024, false, func(r *outbox.Record, s string) { r.Message.Event.DataSchema = s }},
		{"correlation id", 255, false, func(r *outbox.Record, s string) { r.Message.Context.CorrelationID = s }},
		{"causation id", 255, false, func(r *outbox.Record, s string) { r.Message.Context.CausationID = s }},
		{"traceparent", 255, false, func(r *outbox.Record, s string) { r.Message.Context.TraceParent = s }},
		{"tracestate", 4096, false, func(r *outbox.Record, s string) { r.Message.Context.TraceState = s }},
		{"header name", 1024, false, func(r *outbox.Record, s string) {
			if s != "" { // an empty name is refused in other words
				r.Message.Headers[1].Name = s
			}
		}},
		{"CloudEvents extension region", long, false, func(r *outbox.Record, s string) { r.Message.Event.Extensions[0].Value = s }},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			check := func(value string, good bool) {
				t.Helper()
				rec := full()
				f.set(&rec, value)
				err := rec.Normalize(4 << 20)
				switch {
				case good && err != nil:
					t.Errorf("%.20q (%d bytes): %v", value, len(value), err)
				case !good && (!errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), f.name)):
					t.Errorf("%.20q (%d bytes): %v, want ErrInvalidArgument with the name", value, len(value), err)
				}
			}
			check(strings.Repeat("x", f.limit), true)
			check(strings.Repeat("x", f.limit+1), false)
			check("", !f.required)
			check("grün 漢字", true)
			for _, bad := range []string{"a\nb", "\x00", "a\x7f", "\t", "a\xffb", "\xc3"} {
				check(bad, false)
			}
		})
	}
}

func TestNormalizeRefuses(t *testing.T) {
	t.Parallel()
	v4, _ := outbox.ParseID("01890a5d-ac96-774b-bcce-b302099a8057")
	v4[6] = 0x47
	variant := outbox.NewID()
	variant[8] = 0xc0 | variant[8]
	for name, c := range map[string]struct {
		change func(*outbox.Record)
		want   error
		text   string
	}{
		"zero id":              {func(r *outbox.Record) { r.ID = outbox.ID{} }, outbox.ErrInvalidArgument, "outbox.NewID"},
		"UUIDv4":               {func(r *outbox.Record) { r.ID = v4 }, outbox.ErrInvalidArgument, "not a UUIDv7"},
		"another variant":      {func(r *outbox.Record) { r.ID = variant }, outbox.ErrInvalidArgument, "not a UUIDv7"},
		"no CreatedAt":         {func(r *outbox.Record) { r.CreatedAt = time.Time{} }, outbox.ErrInvalidArgument, "CreatedAt"},
		"CreatedAt cut to 0":   {func(r *outbox.Record) { r.CreatedAt = time.Time{}.Add(1) }, outbox.ErrInvalidArgument, "CreatedAt"},
		"lane (S6)":            {func(r *outbox.Record) { r.Lane = 1 }, outbox.ErrInvalidArgument, "belong to the store"},
		"negative lane (S6)":   {func(r *outbox.Record) { r.Lane = -1 }, outbox.ErrInvalidArgument, "belong to the store"},
		"attempts (S6)":        {func(r *outbox.Record) { r.Attempts = 1 }, outbox.ErrInvalidArgument, "belong to the store"},
		"last error (S6)":      {func(r *outbox.Record) { r.LastError = "x" }, outbox.ErrInvalidArgument, "belong to the store"},
		"native callback (S5)": {func(r *outbox.Record) { r.Message.Native = func(any) error { return nil } }, outbox.ErrNotPersistable, "native callback"},
		"unknown envelope":     {func(r *outbox.Record) { r.Message.Envelope = outbox.Raw + 1 }, outbox.ErrInvalidArgument, "envelope"},
		"empty key":            {func(r *outbox.Record) { r.Message.Key = []byte{} }, outbox.ErrInvalidArgument, "use nil"},
		"long key":             {func(r *outbox.Record) { r.Message.Key = make([]byte, 1025) }, outbox.ErrInvalidArgument, "limit 1024"},
		"header without name":  {func(r *outbox.Record) { r.Message.Headers[2].Name = "" }, outbox.ErrInvalidArgument, "header 2"},
		"CreatedAt in 10000":   {func(r *outbox.Record) { r.CreatedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, outbox.ErrInvalidArgument, "years 1 to 9999"},
		"CreatedAt before 1":   {func(r *outbox.Record) { r.CreatedAt = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) }, outbox.ErrInvalidArgument, "years 1 to 9999"},
		"Event.Time in 10000":  {func(r *outbox.Record) { r.Message.Event.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, outbox.ErrInvalidArgument, "years 1 to 9999"},
		"DeliverAt rounds to 10000": {func(r *outbox.Record) {
			r.Message.DeliverAt = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
		},
			outbox.ErrInvalidArgument, "years 1 to 9999"},
		"extension without name":     {func(r *outbox.Record) { r.Message.Event.Extensions[0].Name = "" }, outbox.ErrInvalidArgument, "lower-case"},
		"extension in capitals":      {func(r *outbox.Record) { r.Message.Event.Extensions[0].Name = "traceID" }, outbox.ErrInvalidArgument, "lower-case"},
		"extension with a hyphen":    {func(r *outbox.Record) { r.Message.Event.Extensions[0].Name = "trace-id" }, outbox.ErrInvalidArgument, "lower-case"},
		"extension with a long name": {func(r *outbox.Record) { r.Message.Event.Extensions[0].Name = strings.Repeat("x", 256) }, outbox.ErrInvalidArgument, "255"},
		"extension named time":       {func(r *outbox.Record) { r.Message.Event.Extensions[0].Name = "time" }, outbox.ErrInvalidArgument, "context attribute"},
		"extension named data":       {func(r *outbox.Record) { r.Message.Event.Extensions[0].Name = "data" }, outbox.ErrInvalidArgument, "context attribute"},
		"extension twice":            {func(r *outbox.Record) { r.Message.Event.Extensions[0].Name = "sampled2" }, outbox.ErrInvalidArgument, "stands twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := full()
			c.change(&rec)
			if err := rec.Normalize(0); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}

func TestNormalizeAccepts(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*outbox.Record){
		"raw without source (S4)": func(r *outbox.Record) { r.Message.Envelope, r.Message.Event.Source = outbox.Raw, "" },
		"raw with everything":     func(r *outbox.Record) { r.Message.Envelope = outbox.Raw },
		"structured":              func(r *outbox.Record) { r.Message.Envelope = outbox.Structured },
		"no key":                  func(r *outbox.Record) { r.Message.Key = nil },
		"longest key":             func(r *outbox.Record) { r.Message.Key = make([]byte, 1024) },
		"no headers":              func(r *outbox.Record) { r.Message.Headers, r.Message.Event.Extensions = nil, nil },
		"longest extension name":  func(r *outbox.Record) { r.Message.Event.Extensions[0].Name = strings.Repeat("x", 255) },
		"last microsecond": func(r *outbox.Record) {
			r.Message.DeliverAt = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := full()
			change(&rec)
			if err := rec.Normalize(0); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestNormalizeSize(t *testing.T) {
	t.Parallel()
	rec := full()
	size := rec.Message.Size()
	if err := rec.Normalize(size); err != nil {
		t.Errorf("%d bytes under a limit of %d: %v", size, size, err)
	}
	err := rec.Normalize(size - 1)
	if !errors.Is(err, outbox.ErrTooLarge) || !strings.Contains(err.Error(), rec.ID.String()) || !strings.Contains(err.Error(), "MaxBytes") {
		t.Errorf("one byte over: %v, want ErrTooLarge with id and remedy", err)
	}
	// Each part counts.
	for name, grow := range map[string]func(*outbox.Message){
		"destination": func(m *outbox.Message) { m.Destination += "x" },
		"header name": func(m *outbox.Message) { m.Headers[0].Name += "x" },
		"header":      func(m *outbox.Message) { m.Headers[0].Value = append(m.Headers[0].Value, 'x') },
		"type":        func(m *outbox.Message) { m.ContentType += "x" },
		"body":        func(m *outbox.Message) { m.Body = append(m.Body, 'x') },
		"key":         func(m *outbox.Message) { m.Key = append(m.Key, 'x') },
		"source":      func(m *outbox.Message) { m.Event.Source += "x" },
		"subject":     func(m *outbox.Message) { m.Event.Subject += "x" },
		"schema":      func(m *outbox.Message) { m.Event.DataSchema += "x" },
		"extension":   func(m *outbox.Message) { m.Event.Extensions[1].Value += "x" },
	} {
		rec := full()
		grow(&rec.Message)
		if err := rec.Normalize(size); !errors.Is(err, outbox.ErrTooLarge) {
			t.Errorf("%s does not count: %v", name, err)
		}
	}
	rec = full()
	rec.Message.Body = make([]byte, 1<<20)
	if err := rec.Normalize(0); !errors.Is(err, outbox.ErrTooLarge) {
		t.Errorf("over 1 MiB by default: %v", err)
	}
}

// Distinct extensions by the ten thousand must not cost their square.
func TestNormalizeManyExtensions(t *testing.T) {
	t.Parallel()
	rec := full()
	rec.Message.Event.Extensions = nil
	for i := range 100_000 {
		name := []byte("aaaaa")
		for j := range name {
			name[j] += byte(i % 26)
			i /= 26
		}
		rec.Message.Event.Extensions = append(rec.Message.Event.Extensions, outbox.Extension{Name: string(name)})
	}
	if err := rec.Normalize(0); err != nil {
		t.Fatal(err)
	}
}

func TestClone(t *testing.T) {
	t.Parallel()
	rec := full()
	m := rec.Message
	c := m.Clone()
	if !reflect.DeepEqual(m, c) {
		t.Fatalf("the clone is\n%+v\nnot\n%+v", c, m)
	}
	m.Body[0], m.Key[0], m.Headers[0].Value[0] = 'X', 'X', 'X'
	m.Headers[1].Name, m.Event.Extensions[0].Name = "changed", "changed"
	if !reflect.DeepEqual(c, full().Message) {
		t.Fatalf("the clone shares memory: %+v", c)
	}
	empty := outbox.Message{Body: []byte{}, Headers: []outbox.Header{}}
	if c := empty.Clone(); c.Body == nil || c.Key != nil || c.Headers == nil || c.Event.Extensions != nil {
		t.Fatalf("nil and empty are mixed up: %#v", c)
	}
	native := outbox.Message{Native: func(any) error { return nil }}
	if c := native.Clone(); c.Native == nil {
		t.Fatal("the callback is lost, and a store would take the message")
	}
}

func TestRoundUp(t *testing.T) {
	t.Parallel()
	at := func(ns int) time.Time { return time.Date(2026, 1, 1, 0, 0, 0, ns, time.UTC) }
	for _, c := range []struct{ in, want time.Time }{
		{time.Time{}, time.Time{}},
		{at(0), at(0)},
		{at(1), at(1000)},
		{at(999), at(1000)},
		{at(1000), at(1000)},
		{at(1001), at(2000)},
		{at(999_999_999), at(1_000_000_000)},
		{at(1).In(time.FixedZone("", -3600)), at(1000)},
	} {
		got := outbox.RoundUp(c.in)
		if got != c.want {
			t.Errorf("RoundUp(%v) = %v, want %v", c.in, got, c.want)
		}
	}
	if now := time.Now(); outbox.RoundUp(now).Before(now) {
		t.Errorf("%v was rounded down", now)
	}
}

func TestCleanReason(t *testing.T) {
	t.Parallel()
	const limit = outbox.MaxReason
	for name, c := range map[string]struct{ in, want string }{
		"plain":                   {"connection refused: grün\n", "connection refused: grün\n"},
		"empty":                   {"", ""},
		"nul":                     {"a\x00b", "a\uFFFDb"},
		"broken":                  {"a\xffb\xc3", "a\uFFFDb\uFFFD"},
		"at the limit":            {strings.Repeat("x", limit), strings.Repeat("x", limit)},
		"over the limit":          {strings.Repeat("x", limit+1), strings.Repeat("x", limit)},
		"cut between characters":  {strings.Repeat("x", limit-2) + "éé", strings.Repeat("x", limit-2) + "é"},
		"cut through a character": {strings.Repeat("x", limit-1) + "é", strings.Repeat("x", limit-1)},
		"cut through four bytes":  {strings.Repeat("x", limit-3) + "😀!", strings.Repeat("x", limit-3)},
		"nul grows":               {strings.Repeat("\x00", limit), strings.Repeat("\uFFFD", limit/3)},
	} {
		if got := outbox.CleanReason(c.in); got != c.want {
			t.Errorf("%s: %d bytes %.30q, want %d bytes %.30q", name, len(got), got, len(c.want), c.want)
		}
	}
	for _, unit := range []string{"\x80", "\xe2\x82", "\x00\xff", "a\xf0\x9f", "\xff€"} {
		for _, n := range []int{1, limit - 1, limit, 3 * limit} {
			got := outbox.CleanReason(strings.Repeat(unit, n))
			if len(got) > limit || !utf8.ValidString(got) || bytes.IndexByte([]byte(got), 0) >= 0 || got == "" {
				t.Errorf("%d times %q became %d bytes %.30q", n, unit, len(got), got)
			}
		}
	}
}

func TestEnvelopeNames(t *testing.T) {
	t.Parallel()
	for e, want := range map[outbox.Envelope]string{outbox.Binary: "binary", outbox.Structured: "structured", outbox.Raw: "raw", 9: "envelope(9)"} {
		if got := e.String(); got != want {
			t.Errorf("envelope %d is %q, want %q", e, got, want)
		}
	}
	var zero outbox.Message
	if zero.Envelope != outbox.Binary {
		t.Errorf("the zero envelope is %s, want binary", zero.Envelope)
	}
}
