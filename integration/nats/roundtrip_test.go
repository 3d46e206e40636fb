package nats_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	natsgo "github.com/nats-io/nats.go"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/natstransport"
)

func full(subject string) *outbox.Record {
	rec := record(subject, `{"order":1}`)
	rec.Message.Headers = []outbox.Header{
		{Name: "X-Mixed-CASE", Value: []byte("1")},
		{Name: "x-mixed-case", Value: []byte("other name")},
		{Name: "Twice", Value: []byte("first")},
		{Name: "Twice", Value: []byte("")},
		{Name: "Twice", Value: []byte("third")},
		{Name: "Bytes", Value: []byte{0xff, 0x01, 0x80, 'z'}},
		{Name: "Inner", Value: []byte("a  b:c\td")},
	}
	rec.Message.ContentType = "application/json; charset=utf-8"
	rec.Message.Key = []byte("customer-7")
	rec.Message.Event = outbox.Event{
		Source: "/shop/berlin?x=a%20b", Subject: `order "1" für Ä`, DataSchema: "https://example.com/order.json",
		Time:       time.Date(2026, 3, 29, 2, 30, 0, 120_000, time.FixedZone("CET", 3600)).UTC(),
		Extensions: []outbox.Extension{{Name: "region", Value: "eu west"}, {Name: "shard7", Value: "€"}},
	}
	rec.Message.Context = outbox.ContextFields{
		CorrelationID: "corr-1", CausationID: "cause-1",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "vendor=1,other=2",
	}
	return rec
}

func TestEveryFieldArrives(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	rec := full(f.name + ".orders")
	d := &transport.Delivery{Record: rec, Lane: 17, Epoch: 5, Pos: 1 << 40}
	f.transport(t, nil).Send(t.Context(), []*transport.Delivery{d})
	if o, err := d.Outcome(); o != transport.Accepted {
		t.Fatalf("outcome %s: %v", o, err)
	}
	got := f.stored(t)
	if len(got) != 1 {
		t.Fatalf("%d messages in the stream, want 1", len(got))
	}
	m := got[0]
	if m.Subject != rec.Message.Destination || !bytes.Equal(m.Data, rec.Message.Body) {
		t.Errorf("subject %q body %q", m.Subject, m.Data)
	}
	for name, want := range map[string][]string{
		"X-Mixed-CASE": {"1"}, "x-mixed-case": {"other name"}, "Twice": {"first", "", "third"},
		"Bytes": {"\xff\x01\x80z"}, "Inner": {"a  b:c\td"},
		"Nats-Msg-Id":    {rec.ID.String()},
		"Postrider-Lane": {"17"}, "Postrider-Epoch": {"5"}, "Postrider-Pos": {"1099511627776"},
		"ce-specversion": {"1.0"}, "ce-time": {"2026-03-29T01:30:00.000120Z"},
		"ce-subject": {"order%20%221%22%20f%C3%BCr%20%C3%84"},
	} {
		if !reflect.DeepEqual(m.Header[name], want) {
			t.Errorf("header %s is %q, want %q", name, m.Header[name], want)
		}
	}
	in, err := natstransport.Parse(m.Header)
	if err != nil {
		t.Fatal(err)
	}
	want := transport.Incoming{
		ID: rec.ID.String(), Type: rec.Type, Event: rec.Message.Event, ContentType: rec.Message.ContentType,
		Context: rec.Message.Context, Lane: 17, Epoch: 5, Pos: 1 << 40,
	}
	if !reflect.DeepEqual(in, want) {
		t.Errorf("parsed\n%+v, want\n%+v", in, want)
	}
}

// An independent decoder agrees. Its HTTP binding leaves percent-encoding
// alone, so that the values it sees are the encoded ones.
func TestCloudEventsSDKDecodes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	rec := full(f.name + ".orders")
	if o, err := sendOne(t, f.transport(t, nil), rec); o != transport.Accepted {
		t.Fatalf("outcome %s: %v", o, err)
	}
	m := f.stored(t)[0]
	h := http.Header{}
	for name, vs := range m.Header {
		for _, v := range vs {
			h.Add(name, v)
		}
	}
	msg := cehttp.NewMessage(h, io.NopCloser(bytes.NewReader(m.Data)))
	if e := msg.ReadEncoding(); e != binding.EncodingBinary {
		t.Fatalf("the SDK sees encoding %s, want binary", e)
	}
	ev, err := binding.ToEvent(context.Background(), msg)
	if err != nil {
		t.Fatal(err)
	}
	if err := ev.Validate(); err != nil {
		t.Fatal(err)
	}
	e := rec.Message.Event
	for what, pair := range map[string][2]string{
		"id":              {ev.ID(), rec.ID.String()},
		"type":            {ev.Type(), rec.Type},
		"source":          {ev.Source(), "/shop/berlin?x=a%2520b"},
		"specversion":     {ev.SpecVersion(), "1.0"},
		"datacontenttype": {ev.DataContentType(), rec.Message.ContentType},
		"dataschema":      {ev.DataSchema(), e.DataSchema},
		"time":            {ev.Time().UTC().String(), e.Time.String()},
		"subject":         {ev.Subject(), "order%20%221%22%20f%C3%BCr%20%C3%84"},
		"region":          {fmt.Sprint(ev.Extensions()["region"]), "eu%20west"},
		"data":            {string(ev.Data()), string(rec.Message.Body)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: the SDK reads %q, want %q", what, pair[0], pair[1])
		}
	}
	for name := range ev.Extensions() {
		if strings.HasPrefix(name, "postrider") || name == "traceparent" {
			t.Errorf("extension %q: it must not be a CloudEvents attribute", name)
		}
	}
}

func TestRawEnvelopeCarriesIdentityWithoutCloudEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	rec := full(f.name + ".raw")
	rec.Message.Envelope = outbox.Raw
	rec.Message.Body = []byte("\x00\x01 any bytes \xff")
	// In the raw envelope the message's own "ce-" headers are its business.
	rec.Message.Headers = append(rec.Message.Headers, outbox.Header{Name: "ce-id", Value: []byte("mine")})
	names := transport.HeaderNames{Lane: "L", Epoch: "E", Pos: "P", CorrelationID: "X-Correlation", CausationID: transport.Omit}
	tr := f.transport(t, &natstransport.Options{Headers: names})
	d := &transport.Delivery{Record: rec, Lane: 2, Epoch: 3, Pos: 4}
	tr.Send(t.Context(), []*transport.Delivery{d})
	if o, err := d.Outcome(); o != transport.Accepted {
		t.Fatalf("outcome %s: %v", o, err)
	}
	m := f.stored(t)[0]
	if !bytes.Equal(m.Data, rec.Message.Body) {
		t.Errorf("body %q, want %q", m.Data, rec.Message.Body)
	}
	for name := range m.Header {
		if strings.HasPrefix(strings.ToLower(name), "ce-") && name != "ce-id" {
			t.Errorf("CloudEvents header %s in the raw envelope", name)
		}
	}
	for name, want := range map[string]string{
		"Nats-Msg-Id": rec.ID.String(), "L": "2", "E": "3", "P": "4", "X-Correlation": "corr-1", "Causation-Id": "",
		"traceparent": rec.Message.Context.TraceParent, "tracestate": rec.Message.Context.TraceState,
		"content-type": rec.Message.ContentType, "ce-id": "mine",
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	delete(m.Header, "ce-id")
	if in, err := natstransport.Parse(m.Header); err != nil || in.ID != rec.ID.String() {
		t.Errorf("id of a raw message %q, error %v; want the Nats-Msg-Id", in.ID, err)
	}
	if _, err := natstransport.Parse(natsgo.Header{"A": {"b"}}); err == nil {
		t.Error("a message without any id was parsed without an error")
	}
}
