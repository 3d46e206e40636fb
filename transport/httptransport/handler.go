package httptransport

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/receiver"
)

// HandlerOptions configure [NewHandler]. nil and the zero value are usable.
type HandlerOptions struct {
	// MaxBytes bounds the body of a request. Defaults to outbox.DefaultSize,
	// 1 MiB.
	MaxBytes int64
	// Headers are the names of headers that the sender has renamed.
	Headers transport.HeaderNames
}

// NewHandler serves POST requests that carry one event each:
//
//	204  its effect is committed, or was before, or it is kept as a dead letter
//	400  it is no valid event
//	405  another method than POST
//	413  the body is above MaxBytes
//	415  a batch of events, or a compressed body, which are not taken
//	503  it failed, or its body did not arrive: send it again after Retry-After
//
// HTTP does not count deliveries, so only an error marked receiver.Permanent makes
// an event a dead letter; other retries are bounded by the sender. The body of an
// answer says what is wrong with an event, and nothing of a failure.
//
// An event is known by its id alone, as the inbox has it, whatever its source is: an
// event of another source under the same id is taken for a repeat. Serve sources whose
// ids are not unique among them under a Consumer each.
//
// Whoever may send is the caller's decision: put a check of a password or
// signature in front. Errors are outbox.ErrInvalidArgument.
func NewHandler[Tx any](r *receiver.Receiver[Tx], opts *HandlerOptions) (http.Handler, error) {
	o := HandlerOptions{}
	if opts != nil {
		o = *opts
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = outbox.DefaultSize
	}
	switch {
	case r == nil:
		return nil, fmt.Errorf("%w: the receiver is nil: make one with receiver.New", outbox.ErrInvalidArgument)
	case o.MaxBytes < 0:
		return nil, fmt.Errorf("%w: MaxBytes %d is negative: use a positive number of bytes", outbox.ErrInvalidArgument, o.MaxBytes)
	}
	wire, err := transport.NewWire(transport.HTTP, o.Headers)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "send events by POST", http.StatusMethodNotAllowed)
			return
		}
		again := func(after time.Duration, why string) {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(max(after, time.Second).Seconds()))))
			http.Error(w, why, http.StatusServiceUnavailable)
		}
		m, code, err := read(wire, http.MaxBytesReader(w, req.Body, o.MaxBytes), req.Header)
		switch {
		case code == http.StatusServiceUnavailable:
			again(0, err.Error())
			return
		case err != nil:
			http.Error(w, err.Error(), code)
			return
		}
		if v := r.Handle(req.Context(), m, nil); !v.Ack {
			again(v.Delay, "the event could not be handled")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}), nil
}

// read reads the event of a request, or says with which status it is refused.
func read(wire *transport.Wire, body io.Reader, h http.Header) (m receiver.Message, code int, err error) {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil && h.Get("Content-Type") != "" {
		return m, http.StatusBadRequest, fmt.Errorf("Content-Type: %w", err)
	}
	if strings.HasPrefix(media, "application/cloudevents-batch") {
		return m, http.StatusUnsupportedMediaType, errors.New("send one event a request")
	}
	if coding := strings.TrimSpace(h.Get("Content-Encoding")); coding != "" && !strings.EqualFold(coding, "identity") {
		return m, http.StatusUnsupportedMediaType, fmt.Errorf("the body's Content-Encoding is %.80q: send it as it is", coding)
	}
	if m.Body, err = io.ReadAll(body); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return m, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", large.Limit)
		}
		// Cut off or too slow says nothing of the event, and senders drop what is 400.
		return m, http.StatusServiceUnavailable, errors.New("the body did not arrive whole")
	}
	headers := transport.Values(h)
	if strings.HasPrefix(media, "application/cloudevents") {
		if media != "application/cloudevents+json" && media != "application/cloudevents" {
			return m, http.StatusUnsupportedMediaType, fmt.Errorf("%s: events in the structured mode are read as JSON only", media)
		}
		if headers, m.Body, err = structured(m.Body, h); err != nil {
			return m, http.StatusBadRequest, err
		}
	}
	if m.Incoming, err = wire.Parse(headers); err == nil {
		err = inbox.CheckName("CloudEvents attribute id", m.ID)
	}
	return m, http.StatusBadRequest, err
}

// structured takes a JSON event apart: its attributes as the headers of the binary
// mode, beside those of h that are none, such as the trace; and its data.
func structured(event []byte, h http.Header) (headers iter.Seq2[string, string], data []byte, err error) {
	// It would be read with other characters in their place, and one id as another.
	if !utf8.Valid(event) {
		return nil, nil, errors.New("the event is not UTF-8")
	}
	fields, err := members(event)
	if err != nil {
		return nil, nil, fmt.Errorf("the event is no JSON object: %w", err)
	}
	attrs := map[string][]string{}
	for name, values := range h {
		if low := strings.ToLower(name); low != "content-type" && !strings.HasPrefix(low, transport.HTTP.Prefix) {
			attrs[name] = values
		}
	}
	for name, raw := range fields {
		if name == "data" || name == "data_base64" || string(raw) == "null" {
			continue
		}
		value, err := attribute(raw)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("CloudEvents attribute %.80q: %w", name, err)
		case name == "datacontenttype":
			attrs[transport.HTTP.ContentType] = []string{value}
		default:
			attrs[transport.HTTP.Prefix+name] = []string{literal.Replace(value)}
		}
	}
	text, encoded := fields["data"], fields["data_base64"]
	switch {
	case encoded == nil || string(encoded) == "null":
		data, err = payload(text, attrs[transport.HTTP.ContentType])
	case text != nil:
		return nil, nil, errors.New("the event has both data and data_base64")
	default:
		var s string // a list of numbers would be taken for bytes
		if err = json.Unmarshal(encoded, &s); err == nil {
			data, err = base64.StdEncoding.DecodeString(s)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the event's data: %w", err)
	}
	return transport.Values(attrs), data, nil
}

// members are the members of a JSON object. One that stands twice is refused: others
// may read the one, and this the other.
func members(object []byte) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	_, err := dec.Token()
	seen := make(map[string]bool, len(all))
	for err == nil && dec.More() {
		var name json.Token
		if name, err = dec.Token(); err == nil {
			if text, _ := name.(string); seen[text] {
				return nil, fmt.Errorf("%.80q stands twice", text)
			} else {
				seen[text] = true
			}
			var skip json.RawMessage
			err = dec.Decode(&skip)
		}
	}
	return all, err
}

// literal writes a value such that reading it as a header's changes nothing.
var literal = strings.NewReplacer("%", "%25", `"`, "%22")

// payload is data in its own form: JSON where the content type says so, or
// nothing; else the text that a JSON string holds.
func payload(data json.RawMessage, contentType []string) ([]byte, error) {
	if len(data) == 0 || len(contentType) == 0 {
		return data, nil
	}
	media, _, err := mime.ParseMediaType(contentType[0])
	if err != nil || media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json") {
		return data, err
	}
	s, err := text(data)
	if err != nil {
		return nil, fmt.Errorf("%s is no JSON, so data must be a string: %w", media, err)
	}
	return []byte(s), nil
}

// text is a JSON string, which an escaped half of a character is not: it would be read
// as U+FFFD, whichever it is.
func text(raw json.RawMessage) (s string, err error) {
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", err
	}
	const replaced = "\uFFFD"
	if n := strings.Count(s, replaced); n > 0 && n > strings.Count(strings.ToLower(string(raw)), `\ufffd`)+bytes.Count(raw, []byte(replaced)) {
		return "", errors.New("it has half of a surrogate pair")
	}
	return s, nil
}

// attribute is a value of an attribute: text, a number or a truth value.
func attribute(raw json.RawMessage) (string, error) {
	if len(raw) > 0 && raw[0] == '"' {
		return text(raw)
	}
	if len(raw) > 0 && (raw[0] == '{' || raw[0] == '[') {
		return "", errors.New("it is no text, number or truth value")
	}
	return string(raw), nil
}
