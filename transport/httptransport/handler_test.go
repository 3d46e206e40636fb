package httptransport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport/httptransport"
	"github.com/postrider/postrider/transport/receiver"
)

type tx = *inboxtest.MemTx

type beginner struct{ *inboxtest.Mem }

func (b beginner) Begin(context.Context) (tx, error)      { return b.Mem.Begin(), nil }
func (b beginner) Commit(_ context.Context, t tx) error   { return t.Commit() }
func (b beginner) Rollback(_ context.Context, t tx) error { return t.Rollback() }

// served is a handler and what it has handed on.
type served struct {
	http.Handler
	got  []receiver.Message
	fail error
}

func serve(t *testing.T, opts *httptransport.HandlerOptions) *served {
	t.Helper()
	m := inboxtest.NewMem()
	in, err := inbox.New[tx](m, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{}
	r, err := receiver.New(in, beginner{m}, func(_ context.Context, _ tx, m receiver.Message) error {
		if s.fail == nil {
			s.got = append(s.got, m)
		}
		return s.fail
	}, &receiver.Options[tx]{Consumer: "billing", BackoffMin: 3 * time.Second, BackoffMax: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if s.Handler, err = httptransport.NewHandler(r, opts); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *served) post(body string, headers ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	return w
}

var binary = []string{"ce-specversion", "1.0", "ce-id", "m1", "ce-source", "/shop", "ce-type", "order.v1", "ce-subject", "100%25", "ce-tenant", "x", "Content-Type", "application/json"}

func TestBinaryMode(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for range 2 { // a repeat
		if w := s.post(`{"n":1}`, binary...); w.Code != http.StatusNoContent {
			t.Errorf("got %d, %s", w.Code, w.Body)
		}
	}
	if len(s.got) != 1 {
		t.Fatalf("%d messages were handled, want 1", len(s.got))
	}
	m := s.got[0]
	if m.ID != "m1" || m.Type != "order.v1" || m.Event.Source != "/shop" || m.Event.Subject != "100%" || m.ContentType != "application/json" ||
		string(m.Body) != `{"n":1}` || m.Attempt != 0 || len(m.Event.Extensions) != 1 || m.Event.Extensions[0].Value != "x" {
		t.Errorf("got %+v", m)
	}
}

func TestStructuredMode(t *testing.T) {
	t.Parallel()
	const attrs = `{"specversion":"1.0","source":"/shop","type":"order.v1","subject":"100%","time":"2030-01-02T03:04:05Z","num":7,"flag":true,"none":null,`
	for name, tc := range map[string]struct{ rest, body string }{
		"JSON":                 {`"id":"1","data":{"n": 1}}`, `{"n": 1}`},
		"named JSON":           {`"id":"2","datacontenttype":"application/json","data":"text"}`, `"text"`},
		"text":                 {`"id":"3","datacontenttype":"text/plain","data":"h\u00e9"}`, "h\u00e9"},
		"binary":               {`"id":"4","datacontenttype":"application/octet-stream","data_base64":"AP8="}`, "\x00\xff"},
		"without any":          {`"id":"5"}`, ""},
		"null is no attribute": {`"id":"6","datacontenttype":null,"dataschema":null,"data":{"n": 1},"data_base64":null}`, `{"n": 1}`},
	} {
		s := serve(t, nil)
		if w := s.post(attrs+tc.rest, "Content-Type", "application/cloudevents+json; charset=utf-8"); w.Code != http.StatusNoContent || len(s.got) != 1 {
			t.Errorf("%s: got %d, %s", name, w.Code, w.Body)
			continue
		}
		m := s.got[0]
		if string(m.Body) != tc.body || m.Event.Subject != "100%" || m.Event.Time.Year() != 2030 || len(m.Event.Extensions) != 2 ||
			m.Event.Extensions[0] != (outbox.Extension{Name: "flag", Value: "true"}) || m.Event.Extensions[1] != (outbox.Extension{Name: "num", Value: "7"}) {
			t.Errorf("%s: got %+v, body %q", name, m, m.Body)
		}
	}
}

// What is special in a header's value is not so in JSON's: ids that differ are not
// taken for one.
func TestStructuredValuesAreExact(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for text, id := range map[string]string{
		`a`: `a`, `\"a\"`: `"a"`, `\"\\a\"`: `"\a"`, `a%41`: `a%41`, `\"%22\"`: `"%22"`, `\ufffd`: "\uFFFD", "\uFFFDa": "\uFFFDa", `\ud83d\ude00`: "\U0001F600",
	} {
		s.got = nil
		w := s.post(`{"specversion":"1.0","source":"/shop","type":"order.v1","id":"`+text+`"}`, "Content-Type", "application/cloudevents+json")
		if w.Code != http.StatusNoContent || len(s.got) != 1 || s.got[0].ID != id {
			t.Errorf("id %s: got %d, %s, messages %+v, want %s", text, w.Code, w.Body, s.got, id)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t, &httptransport.HandlerOptions{MaxBytes: 100})
	const json = "application/cloudevents+json"
	for name, tc := range map[string]struct {
		body string
		h    []string
		code int
		says string
	}{
		"no event":        {"{}", []string{"Content-Type", "application/json"}, 400, "no CloudEvents headers"},
		"no id":           {"{}", []string{"ce-specversion", "1.0", "ce-source", "/", "ce-type", "t"}, 400, "id is missing"},
		"long id":         {"{}", []string{"ce-specversion", "1.0", "ce-id", strings.Repeat("x", 256), "ce-source", "/", "ce-type", "t"}, 400, "limit 255"},
		"id of two lines": {"{}", []string{"ce-specversion", "1.0", "ce-id", "a%0Ab", "ce-source", "/", "ce-type", "t"}, 400, "control byte"},
		"other version":   {"{}", []string{"ce-specversion", "2.0", "ce-id", "1", "ce-source", "/", "ce-type", "t"}, 400, "only 1.x"},
		"no JSON":         {"{", []string{"Content-Type", json}, 400, "no JSON object"},
		"a list":          {"[]", []string{"Content-Type", json}, 400, "no JSON object"},
		"deep":            {`{"specversion":"1.0","id":{}}`, []string{"Content-Type", json}, 400, "id"},
		"both":            {`{"specversion":"1.0","id":"1","data":1,"data_base64":"AA=="}`, []string{"Content-Type", json}, 400, "both"},
		"bad base64":      {`{"specversion":"1.0","id":"1","data_base64":"?"}`, []string{"Content-Type", json}, 400, "data"},
		"no string":       {`{"datacontenttype":"text/plain","data":1}`, []string{"Content-Type", json}, 400, "must be a string"},
		"no UTF-8":        {"{\"specversion\":\"1.0\",\"source\":\"/\",\"type\":\"t\",\"id\":\"\xff\"}", []string{"Content-Type", json}, 400, "not UTF-8"},
		"half an id":      {`{"specversion":"1.0","source":"/","type":"t","id":"\ud800"}`, []string{"Content-Type", json}, 400, "surrogate"},
		"half of a text":  {`{"id":"1","datacontenttype":"text/plain","data":"\uFFFD\udc00"}`, []string{"Content-Type", json}, 400, "surrogate"},
		"large":           {strings.Repeat("x", 101), binary, 413, "100 bytes"},
		"batch":           {"[]", []string{"Content-Type", "application/cloudevents-batch+json"}, 415, "one event"},
		"compressed":      {"{}", append([]string{"Content-Encoding", "gzip"}, binary...), 415, "gzip"},
		"id twice":        {`{"specversion":"1.0","source":"/","type":"t","id":"1","id":"2"}`, []string{"Content-Type", json}, 400, "twice"},
		"list for base64": {`{"specversion":"1.0","source":"/","type":"t","id":"1","data_base64":[1,2]}`, []string{"Content-Type", json}, 400, "data"},
		"XML":             {"<e/>", []string{"Content-Type", "application/cloudevents+xml"}, 415, "JSON only"},
		"bad type":        {"{}", []string{"Content-Type", "/"}, 400, "Content-Type"},
	} {
		if w := s.post(tc.body, tc.h...); w.Code != tc.code || !strings.Contains(w.Body.String(), tc.says) {
			t.Errorf("%s: got %d, %s, want %d saying %q", name, w.Code, w.Body, tc.code, tc.says)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: got %d", w.Code)
	}
	if len(s.got) != 0 {
		t.Errorf("%d messages were handled", len(s.got))
	}
	if _, err := httptransport.NewHandler[tx](nil, nil); !errors.Is(err, outbox.ErrInvalidArgument) {
		t.Errorf("no receiver: got %v", err)
	}
}

// A failure is told without its reason, which may hold secrets.
func TestFailure(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.fail = errors.New("password")
	w := s.post("{}", binary...)
	if after := w.Header().Get("Retry-After"); w.Code != 503 || after < "1" || after > "3" || strings.Contains(w.Body.String(), "password") {
		t.Errorf("got %d, Retry-After %q, %s", w.Code, after, w.Body)
	}
	s.fail = nil
	if w := s.post("{}", binary...); w.Code != 204 || len(s.got) != 1 {
		t.Errorf("sent again: got %d, %d messages", w.Code, len(s.got))
	}
}

// broken is a body that ends in an error.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// A body that is too slow or cut off says nothing of the event: a status below 500
// would have the sender drop it.
func TestBodyThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, err := range []error{os.ErrDeadlineExceeded, io.ErrUnexpectedEOF, errors.New("malformed chunked encoding")} {
		req := httptest.NewRequest(http.MethodPost, "/", broken{err})
		for i := 0; i < len(binary); i += 2 {
			req.Header.Add(binary[i], binary[i+1])
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || len(s.got) != 0 {
			t.Errorf("%v: got %d, Retry-After %q, %d messages", err, w.Code, w.Header().Get("Retry-After"), len(s.got))
		}
	}
}

// The trace of a request is that of its event in both modes; its ce- headers are not
// an event in the structured mode.
func TestStructuredModeKeepsTheTrace(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	w := s.post(`{"specversion":"1.0","source":"/shop","type":"order.v1","id":"1"}`, "Content-Type", "application/cloudevents+json", "traceparent", "00-1-2-01", "ce-id", "2")
	if w.Code != http.StatusNoContent || len(s.got) != 1 || s.got[0].ID != "1" || s.got[0].Context.TraceParent != "00-1-2-01" || s.got[0].ContentType != "" {
		t.Errorf("got %d, %s, messages %+v", w.Code, w.Body, s.got)
	}
}
