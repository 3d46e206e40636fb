package transport_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

func newWire(t testing.TB, b transport.Binding, n transport.HeaderNames, own ...string) *transport.Wire {
	t.Helper()
	w, err := transport.NewWire(b, n, own...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func sample() *transport.Delivery {
	rec := &outbox.Record{
		ID: outbox.NewID(), Transport: "default", Type: "shop.order.placed.v1", CreatedAt: time.Now(),
		Message: outbox.Message{
			Destination: "shop.orders", ContentType: "application/json", Body: []byte("{}"),
			Headers: []outbox.Header{{Name: "B", Value: []byte("1")}, {Name: "a", Value: nil}, {Name: "B", Value: []byte("2")}},
			Event: outbox.Event{
				Source: "/shop", Subject: "100 % \"sure\"", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
				DataSchema: "https://example.com/s", Extensions: []outbox.Extension{{Name: "zone", Value: "€"}, {Name: "empty"}},
			},
			Context: outbox.ContextFields{CorrelationID: "co", CausationID: "ca", TraceParent: "tp", TraceState: "ts"},
		},
	}
	return &transport.Delivery{Record: rec, Lane: 3, Epoch: 2, Pos: 9}
}

func lines(hs []outbox.Header) []string {
	out := make([]string, len(hs))
	for i, h := range hs {
		out[i] = h.Name + "=" + string(h.Value)
	}
	return out
}

func headers(t *testing.T, w *transport.Wire, d *transport.Delivery) []string {
	t.Helper()
	hs, err := w.Headers(nil, d)
	if err != nil {
		t.Fatal(err)
	}
	return lines(hs)
}

func TestHeadersOfEachBinding(t *testing.T) {
	t.Parallel()
	d := sample()
	id := d.Record.ID.String()
	tail := []string{"Postrider-Lane=3", "Postrider-Epoch=2", "Postrider-Pos=9", "traceparent=tp", "tracestate=ts", "Correlation-Id=co", "Causation-Id=ca"}
	for _, c := range []struct {
		binding transport.Binding
		want    []string
	}{
		{transport.NATS, []string{"B=1", "a=", "B=2", "content-type=application/json",
			"ce-specversion=1.0", "ce-id=" + id, "ce-source=/shop", "ce-type=shop.order.placed.v1", "ce-time=2026-01-02T03:04:05.000000Z",
			"ce-subject=100%20%25%20%22sure%22", "ce-dataschema=https://example.com/s", "ce-zone=%E2%82%AC", "ce-empty="}},
		{transport.HTTP, []string{"B=1", "a=", "B=2", "Content-Type=application/json",
			"ce-specversion=1.0", "ce-id=" + id, "ce-source=/shop", "ce-type=shop.order.placed.v1", "ce-time=2026-01-02T03:04:05.000000Z",
			"ce-subject=100%20%25%20%22sure%22", "ce-dataschema=https://example.com/s", "ce-zone=%E2%82%AC", "ce-empty="}},
		{transport.Kafka, []string{"B=1", "a=", "B=2", "content-type=application/json",
			"ce_specversion=1.0", "ce_id=" + id, "ce_source=/shop", "ce_type=shop.order.placed.v1", "ce_time=2026-01-02T03:04:05.000000Z",
			"ce_subject=100 % \"sure\"", "ce_dataschema=https://example.com/s", "ce_zone=€", "ce_empty="}},
	} {
		t.Run(c.binding.Name, func(t *testing.T) {
			w := newWire(t, c.binding, transport.HeaderNames{})
			if got, want := headers(t, w, d), append(c.want, tail...); !reflect.DeepEqual(got, want) {
				t.Errorf("headers\n%q, want\n%q", got, want)
			}
			hs, _ := w.Headers(nil, d)
			in, err := w.Parse(func(yield func(string, string) bool) {
				for _, h := range hs {
					if !yield(h.Name, string(h.Value)) {
						return
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			m := d.Record.Message
			m.Event.Extensions = []outbox.Extension{{Name: "empty"}, {Name: "zone", Value: "€"}}
			want := transport.Incoming{ID: id, Type: d.Record.Type, Event: m.Event, ContentType: m.ContentType, Context: m.Context, Lane: 3, Epoch: 2, Pos: 9}
			if !reflect.DeepEqual(in, want) {
				t.Errorf("parsed\n%+v, want\n%+v", in, want)
			}
		})
	}
}

func TestRawKeepsMetadataAndAddsNoCloudEvents(t *testing.T) {
	t.Parallel()
	d := sample()
	d.Record.Message.Envelope = outbox.Raw
	want := []string{"B=1", "a=", "B=2", "content-type=application/json", "Postrider-Lane=3", "Postrider-Epoch=2", "Postrider-Pos=9",
		"traceparent=tp", "tracestate=ts", "Correlation-Id=co", "Causation-Id=ca"}
	if got := headers(t, newWire(t, transport.NATS, transport.HeaderNames{}), d); !reflect.DeepEqual(got, want) {
		t.Errorf("headers %q, want %q", got, want)
	}
}

func TestHeaderNames(t *testing.T) {
	t.Parallel()
	d := sample()
	d.Record.Message.Envelope, d.Record.Message.Headers, d.Record.Message.ContentType = outbox.Raw, nil, ""
	w := newWire(t, transport.NATS, transport.HeaderNames{Lane: "X-Lane", Pos: transport.Omit, TraceState: transport.Omit, CorrelationID: "cid"})
	want := []string{"X-Lane=3", "Postrider-Epoch=2", "traceparent=tp", "cid=co", "Causation-Id=ca"}
	if got := headers(t, w, d); !reflect.DeepEqual(got, want) {
		t.Errorf("headers %q, want %q", got, want)
	}
	d.Lane = 0 // not from a lane
	if got := headers(t, w, d); !reflect.DeepEqual(got, want[2:]) {
		t.Errorf("headers outside lanes %q, want %q", got, want[2:])
	}
	for says, n := range map[string]transport.HeaderNames{
		`HeaderNames.Lane "a b"`:                    {Lane: "a b"},
		`HeaderNames.Epoch "é"`:                     {Epoch: "é"},
		`HeaderNames.Pos "CE-pos" begins`:           {Pos: "CE-pos"},
		`"nats-msg-id" is used by the transport`:    {Lane: "nats-msg-id"},
		`"Content-Type" is used by the content`:     {CausationID: "Content-Type"},
		`used by HeaderNames.TraceParent already`:   {CausationID: "TraceParent"},
		`HeaderNames.TraceState "` + long(256) + ``: {TraceState: long(256)},
	} {
		if _, err := transport.NewWire(transport.NATS, n, "Nats-Msg-Id"); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("NewWire(%+v): %v, want an invalid argument that says %s", n, err, says)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestHeadersThatForgeIdentityAreRefused(t *testing.T) {
	t.Parallel()
	w := newWire(t, transport.NATS, transport.HeaderNames{}, "Nats-Msg-Id")
	for _, c := range []struct {
		name     string
		envelope outbox.Envelope
		says     string // "" = carried
	}{
		{"ce-id", outbox.Binary, "CloudEvents attribute"},
		{"CE-Anything", outbox.Binary, "CloudEvents attribute"},
		{"ce-id", outbox.Raw, ""},
		{"nats-msg-id", outbox.Raw, "written by the transport"},
		{"postrider-EPOCH", outbox.Raw, "written by the transport"},
		{"Content-Type", outbox.Binary, "ContentType"},
		{"ce_id", outbox.Binary, ""},
	} {
		d := sample()
		d.Record.Message.Envelope = c.envelope
		d.Record.Message.Headers = []outbox.Header{{Name: c.name, Value: []byte("forged")}}
		_, err := w.Headers(nil, d)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.name)) {
			t.Errorf("native header %s in the %s envelope: error %v, want %q", c.name, c.envelope, err, c.says)
		}
	}
	d := sample()
	d.Record.Message.Envelope = outbox.Structured
	if _, err := w.Headers(nil, d); err == nil || !strings.Contains(err.Error(), "structured") {
		t.Errorf("structured envelope: %v, want an error that names it", err)
	}
}

// Rows of producers in other languages are checked here first; consumers could
// not read these events.
func TestWhatIsNoEventIsRefused(t *testing.T) {
	t.Parallel()
	w := newWire(t, transport.NATS, transport.HeaderNames{})
	extensions := func(names ...string) func(*outbox.Record) {
		return func(r *outbox.Record) {
			r.Message.Event.Extensions = nil
			for _, n := range names {
				r.Message.Event.Extensions = append(r.Message.Event.Extensions, outbox.Extension{Name: n, Value: "x"})
			}
		}
	}
	for says, change := range map[string]func(*outbox.Record){
		"source is empty":        func(r *outbox.Record) { r.Message.Event.Source = "" },
		"type is empty":          func(r *outbox.Record) { r.Type = "" },
		`name ""`:                extensions(""),
		`name "Zone"`:            extensions("Zone"),
		`name "a b"`:             extensions("a b"),
		`"id" is a context`:      extensions("zone", "id"),
		`"subject" is a context`: extensions("subject"),
		`"zone" stands twice`:    extensions("zone", "empty", "zone"),
	} {
		d := sample()
		change(d.Record)
		if _, err := w.Headers(nil, d); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, want one that says %s", err, says)
		}
		d.Record.Message.Envelope = outbox.Raw
		if _, err := w.Headers(nil, d); err != nil {
			t.Errorf("%s, raw: %v", says, err)
		}
	}
}

func TestNativeTraceHeaderStandsAlone(t *testing.T) {
	t.Parallel()
	d := sample()
	d.Record.Message.Envelope, d.Record.Message.ContentType = outbox.Raw, ""
	d.Record.Message.Headers = []outbox.Header{{Name: "TraceParent", Value: []byte("own")}, {Name: "correlation-id", Value: []byte("own")}}
	d.Lane = 0
	want := []string{"TraceParent=own", "correlation-id=own", "tracestate=ts", "Causation-Id=ca"}
	if got := headers(t, newWire(t, transport.NATS, transport.HeaderNames{}), d); !reflect.DeepEqual(got, want) {
		t.Errorf("headers %q, want %q", got, want)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	w := newWire(t, transport.HTTP, transport.HeaderNames{})
	ok := map[string][]string{"Ce-Specversion": {"1.0"}, "CE-ID": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}}
	with := func(kv ...string) map[string][]string {
		h := map[string][]string{}
		for k, v := range ok {
			h[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			if kv[i+1] == "" {
				delete(h, kv[i])
			} else {
				h[kv[i]] = strings.Split(kv[i+1], "|")
			}
		}
		return h
	}
	for name, c := range map[string]struct {
		h    map[string][]string
		says string // "" = parsed
	}{
		"canonical names":       {with(), ""},
		"a later 1.x":           {with("Ce-Specversion", "1.1"), ""},
		"version 0.3":           {with("Ce-Specversion", "0.3"), `"0.3"`},
		"no id":                 {with("CE-ID", ""), "attribute id is missing"},
		"no source":             {with("ce-source", ""), "attribute source is missing"},
		"no type":               {with("ce-type", ""), "attribute type is missing"},
		"two ids":               {with("CE-ID", "1|2"), "id stands twice"},
		"two ids by case":       {with("ce-id", "2"), "id stands twice"},
		"bad time":              {with("ce-time", "yesterday"), "attribute time"},
		"bad lane":              {with("Postrider-Lane", "99999999999"), "99999999999"},
		"bad epoch":             {with("Postrider-Epoch", "x"), `"x"`},
		"no CloudEvents at all": {map[string][]string{"A": {"b"}}, transport.ErrNoEvent.Error()},
	} {
		_, err := w.Parse(transport.Values(c.h))
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: error %v, want %q", name, err, c.says)
		}
	}
	// The HTTP binding's rules for reading, foreign writers included.
	for sent, want := range map[string]string{
		`Euro%20%E2%82%AC%20%f0%9f%98%80`: "Euro € 😀", `plain`: "plain", `"quoted value"`: "quoted value",
		`"a \"b\" c"`: `a "b" c`, `100%`: "100%", `%zz%4`: "%zz%4", `"`: `"`, `%22`: `"`,
	} {
		in, err := w.Parse(transport.Values(with("ce-subject", sent)))
		if err != nil || in.Event.Subject != want {
			t.Errorf("subject %s reads %q, error %v; want %q", sent, in.Event.Subject, err, want)
		}
	}
	in, err := w.Parse(transport.Values(map[string][]string{"Correlation-Id": {"co"}, "Postrider-Lane": {"4"}}))
	if !errors.Is(err, transport.ErrNoEvent) || in.Context.CorrelationID != "co" || in.Lane != 4 {
		t.Errorf("a raw message: %+v, error %v; want the context and ErrNoEvent", in, err)
	}
}

// Whatever text an attribute holds comes back, and only printable ASCII goes
// over the wire.
func FuzzAttribute(f *testing.F) {
	for _, s := range []string{"", " ", "%", "%25", "\"", "\"x\"", "é€😀", "a\\\"b", "%zz"} {
		f.Add(s)
	}
	w, err := transport.NewWire(transport.NATS, transport.HeaderNames{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d := sample()
		d.Record.Message.Event.Extensions = []outbox.Extension{{Name: "x", Value: s}}
		hs, err := w.Headers(nil, d)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for _, h := range hs {
			got[h.Name] = append(got[h.Name], string(h.Value))
		}
		if v := got["ce-x"][0]; strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Fatalf("%q is sent as %q", s, v)
		}
		in, err := w.Parse(transport.Values(got))
		if err != nil || fmt.Sprint(in.Event.Extensions) != fmt.Sprint([]outbox.Extension{{Name: "x", Value: s}}) {
			t.Fatalf("%q came back as %q, error %v", s, in.Event.Extensions, err)
		}
	})
}
