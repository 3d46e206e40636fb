package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/outbox"
)

// diff names the fields in which got is not what was enlisted as want; "" if it
// is equal (S2, S3). want is normalized here. Lane, Attempts and LastError are
// the store's and compared by the rules that are about them.
func diff(want, got outbox.Record, nilBodyIsEmpty bool) string {
	if err := want.Normalize(0); err != nil {
		return "the record cannot be normalized: " + err.Error()
	}
	var out []string
	add := func(name string, w, g any) {
		out = append(out, fmt.Sprintf("%s: got %.200q, want %.200q", name, fmt.Sprint(g), fmt.Sprint(w)))
	}
	text := func(name, w, g string) {
		if w != g {
			add(name, w, g)
		}
	}
	blob := func(name string, w, g []byte) {
		if !bytes.Equal(w, g) {
			add(name, fmt.Sprintf("%x", w), fmt.Sprintf("%x", g))
		}
	}
	instant := func(name string, w, g time.Time) {
		if !w.Equal(g) {
			add(name, w, g)
		} else if g.Location() != time.UTC {
			add(name+" location", time.UTC, g.Location())
		}
	}
	w, g := &want.Message, &got.Message
	text("id", want.ID.String(), got.ID.String())
	text("transport", want.Transport, got.Transport)
	text("type", want.Type, got.Type)
	text("tenant", want.TenantID, got.TenantID)
	instant("created at", want.CreatedAt, got.CreatedAt)
	text("destination", w.Destination, g.Destination)
	text("content type", w.ContentType, g.ContentType)
	blob("body", w.Body, g.Body)
	if (w.Body == nil) != (g.Body == nil) && !nilBodyIsEmpty {
		add("body is nil", w.Body == nil, g.Body == nil)
	}
	blob("key", w.Key, g.Key)
	if (w.Key == nil) != (g.Key == nil) {
		add("key is nil", w.Key == nil, g.Key == nil)
	}
	instant("deliver at", w.DeliverAt, g.DeliverAt)
	text("source", w.Event.Source, g.Event.Source)
	text("subject", w.Event.Subject, g.Event.Subject)
	instant("event time", w.Event.Time, g.Event.Time)
	text("dataschema", w.Event.DataSchema, g.Event.DataSchema)
	text("correlation id", w.Context.CorrelationID, g.Context.CorrelationID)
	text("causation id", w.Context.CausationID, g.Context.CausationID)
	text("traceparent", w.Context.TraceParent, g.Context.TraceParent)
	text("tracestate", w.Context.TraceState, g.Context.TraceState)
	text("envelope", w.Envelope.String(), g.Envelope.String())
	if g.Native != nil {
		add("native callback", "none", "one")
	}
	if len(w.Headers) != len(g.Headers) {
		add("headers", len(w.Headers), len(g.Headers))
	} else {
		for i := range w.Headers {
			text(fmt.Sprintf("header %d name", i), w.Headers[i].Name, g.Headers[i].Name)
			blob(fmt.Sprintf("header %d value", i), w.Headers[i].Value, g.Headers[i].Value)
		}
	}
	if len(w.Event.Extensions) != len(g.Event.Extensions) {
		add("extensions", len(w.Event.Extensions), len(g.Event.Extensions))
	} else {
		for i := range w.Event.Extensions {
			text(fmt.Sprintf("extension %d", i), fmt.Sprint(w.Event.Extensions[i]), fmt.Sprint(g.Event.Extensions[i]))
		}
	}
	return strings.Join(out, "; ")
}
