package transport

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/outbox"
)

// SpecVersion is the CloudEvents version of the binary content mode written
// here (CloudEvents 1.0.2).
const SpecVersion = "1.0"

// timeLayout is RFC 3339 with exactly six digits, the precision of the table.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// Omit is the header name that leaves a header out.
const Omit = "-"

// HeaderNames renames the headers that carry what the message itself does
// not. They are written in every envelope, [outbox.Raw] included, and are
// never CloudEvents attributes. In each field "" means the default and [Omit]
// leaves the header out.
type HeaderNames struct {
	// Lane, Epoch and Pos say which owner of which lane sent the message, and
	// its position there, in decimal: a consumer can refuse what an older owner
	// sent late. Absent when the message was not sent from a lane. Default to
	// Postrider-Lane, Postrider-Epoch and Postrider-Pos.
	Lane, Epoch, Pos string
	// TraceParent and TraceState carry the W3C trace context. Default to
	// traceparent and tracestate.
	TraceParent, TraceState string
	// CorrelationID and CausationID carry the ids of the message's context.
	// Default to Correlation-Id and Causation-Id.
	CorrelationID, CausationID string
}

type namedHeader struct {
	field, def string
	name       *string
}

func (n *HeaderNames) list() [7]namedHeader {
	return [...]namedHeader{
		{"Lane", "Postrider-Lane", &n.Lane},
		{"Epoch", "Postrider-Epoch", &n.Epoch},
		{"Pos", "Postrider-Pos", &n.Pos},
		{"TraceParent", "traceparent", &n.TraceParent},
		{"TraceState", "tracestate", &n.TraceState},
		{"CorrelationID", "Correlation-Id", &n.CorrelationID},
		{"CausationID", "Causation-Id", &n.CausationID},
	}
}

// Binding is how a protocol carries CloudEvents in the binary content mode.
type Binding struct {
	// Name of the protocol, for error texts.
	Name string
	// Prefix of the attributes' header names.
	Prefix string
	// ContentType is the header that carries datacontenttype.
	ContentType string
	// Percent says that attribute values are percent-encoded: space, double
	// quote, percent and everything outside printable ASCII.
	Percent bool
}

// The bindings of CloudEvents 1.0.2.
var (
	NATS  = Binding{Name: "NATS", Prefix: "ce-", ContentType: "content-type", Percent: true}
	HTTP  = Binding{Name: "HTTP", Prefix: "ce-", ContentType: "Content-Type", Percent: true}
	Kafka = Binding{Name: "Kafka", Prefix: "ce_", ContentType: "content-type"}
)

// Wire lays records out as headers; the payload is always Message.Body,
// untouched. It is immutable and safe for concurrent use.
type Wire struct {
	binding Binding
	names   HeaderNames
	// reserved are the header names, in lower case, that a message must not
	// bring along itself.
	reserved map[string]bool
	prefix   string // of the attributes, in lower case
}

// NewWire returns the layout of a binding with the given header names. own are
// further names that the transport writes itself (Nats-Msg-Id). Names must be
// tokens of letters, digits and -_. , at most [outbox.MaxName] bytes, each used
// once, and none may begin with the binding's prefix.
func NewWire(b Binding, names HeaderNames, own ...string) (*Wire, error) {
	w := &Wire{binding: b, names: names, reserved: map[string]bool{}, prefix: strings.ToLower(b.Prefix)}
	used := map[string]string{strings.ToLower(b.ContentType): "the content type"}
	for _, o := range own {
		used[strings.ToLower(o)] = "the transport"
		w.reserved[strings.ToLower(o)] = true
	}
	for i, h := range w.names.list() {
		switch *h.name {
		case "":
			*h.name = h.def
		case Omit:
			*h.name = ""
			continue
		}
		low := strings.ToLower(*h.name)
		switch {
		case len(low) > outbox.MaxName || !isToken(low):
			return nil, fmt.Errorf("%w: header name HeaderNames.%s %q: use 1 to %d letters, digits and -_. , or %q to leave it out", outbox.ErrInvalidArgument, h.field, *h.name, outbox.MaxName, Omit)
		case strings.HasPrefix(low, w.prefix):
			return nil, fmt.Errorf("%w: header name HeaderNames.%s %q begins with %q, which is for CloudEvents attributes: choose another", outbox.ErrInvalidArgument, h.field, *h.name, b.Prefix)
		case used[low] != "":
			return nil, fmt.Errorf("%w: header name HeaderNames.%s %q is used by %s already: choose another", outbox.ErrInvalidArgument, h.field, *h.name, used[low])
		}
		used[low] = "HeaderNames." + h.field
		if i < 3 { // lane, epoch and pos: a forged one would defeat the fence
			w.reserved[low] = true
		}
	}
	return w, nil
}

func isToken(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

// Headers appends the headers of d to dst and returns it: first the message's
// own, in order, then the content type, the CloudEvents attributes (not in the
// Raw envelope), lane, epoch and position, trace, correlation and causation.
// Values may share memory with the record.
//
// Where the message brings a trace, correlation or causation header of its
// own, that one stands alone. A message that brings one of the headers that
// make its identity or its fence (an attribute in the Binary envelope, the
// lane, epoch or position, the transport's own, a second content type) is
// refused, as are the Structured envelope and what would be no CloudEvent: one
// without source or type, or with an extension that is none. Such an error is
// for good: the outcome is [Permanent].
func (w *Wire) Headers(dst []outbox.Header, d *Delivery) ([]outbox.Header, error) {
	rec := d.Record
	m := &rec.Message
	if m.Envelope != outbox.Binary && m.Envelope != outbox.Raw {
		return dst, fmt.Errorf("the %s envelope is not supported over %s: use binary or raw", m.Envelope, w.binding.Name)
	}
	if m.Envelope == outbox.Binary {
		if err := checkEvent(rec); err != nil {
			return dst, err
		}
	}
	var own [4]bool // traceparent, tracestate, correlation, causation
	context := [...]struct{ name, value string }{
		{w.names.TraceParent, m.Context.TraceParent},
		{w.names.TraceState, m.Context.TraceState},
		{w.names.CorrelationID, m.Context.CorrelationID},
		{w.names.CausationID, m.Context.CausationID},
	}
	for _, h := range m.Headers {
		low := strings.ToLower(h.Name)
		switch {
		case w.reserved[low]:
			return dst, fmt.Errorf("header %q is written by the transport: rename it", h.Name)
		case m.Envelope == outbox.Binary && strings.HasPrefix(low, w.prefix):
			return dst, fmt.Errorf("header %q would become a CloudEvents attribute: rename it, use Event.Extensions, or the raw envelope", h.Name)
		case m.ContentType != "" && low == strings.ToLower(w.binding.ContentType):
			return dst, fmt.Errorf("header %q stands beside Message.ContentType %q: keep one of them", h.Name, m.ContentType)
		}
		for i, c := range context {
			own[i] = own[i] || c.name != "" && strings.EqualFold(c.name, h.Name)
		}
		dst = append(dst, h)
	}
	add := func(name, value string) {
		if name != "" && value != "" {
			dst = append(dst, outbox.Header{Name: name, Value: []byte(value)})
		}
	}
	add(w.binding.ContentType, m.ContentType)
	if m.Envelope == outbox.Binary {
		attr := func(name, value string) { add(w.binding.Prefix+name, w.binding.encode(value)) }
		attr("specversion", SpecVersion)
		attr("id", rec.ID.String())
		attr("source", m.Event.Source)
		attr("type", rec.Type)
		if !m.Event.Time.IsZero() {
			attr("time", m.Event.Time.UTC().Format(timeLayout))
		}
		attr("subject", m.Event.Subject)
		attr("dataschema", m.Event.DataSchema)
		for _, x := range m.Event.Extensions {
			// An attribute may be empty text, unlike the optional ones above.
			dst = append(dst, outbox.Header{Name: w.binding.Prefix + x.Name, Value: []byte(w.binding.encode(x.Value))})
		}
	}
	if d.Lane != 0 {
		add(w.names.Lane, strconv.Itoa(int(d.Lane)))
		add(w.names.Epoch, strconv.FormatInt(d.Epoch, 10))
		add(w.names.Pos, strconv.FormatInt(d.Pos, 10))
	}
	for i, c := range context {
		if !own[i] {
			add(c.name, c.value)
		}
	}
	return dst, nil
}

// checkEvent is for rows that no Enlist has checked, of producers in other
// languages: consumers cannot read such an event, and would be given it for ever.
func checkEvent(rec *outbox.Record) error {
	e := &rec.Message.Event
	switch {
	case e.Source == "":
		return errors.New("CloudEvents source is empty: have the producer set it (ce_source), or use the raw envelope")
	case rec.Type == "":
		return errors.New("the type is empty: have the producer set it (message_type)")
	}
	seen := make(map[string]bool)
	for _, x := range e.Extensions {
		if x.Name == "" || strings.Trim(x.Name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return fmt.Errorf("CloudEvents extension name %.80q: have the producer use lower-case letters and digits", x.Name)
		}
		switch x.Name {
		case "id", "source", "specversion", "type", "time", "subject", "dataschema", "datacontenttype":
			return fmt.Errorf("CloudEvents extension name %q is a context attribute: have the producer set its own column", x.Name)
		}
		if seen[x.Name] {
			return fmt.Errorf("CloudEvents extension %.80q stands twice: have the producer write it once", x.Name)
		}
		seen[x.Name] = true
	}
	return nil
}

// encode is HTTP binding 3.1.3.2: space, double quote, percent and every byte
// outside U+0021 to U+007E of the UTF-8 form.
func (b Binding) encode(s string) string {
	if !b.Percent {
		return s
	}
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }
	n := 0
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

// decode undoes encode. As the HTTP binding asks, a value in double quotes is
// unquoted first, and a percent sign that begins no escape stands for itself.
func (b Binding) decode(s string) string {
	if !b.Percent {
		return s
	}
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
		if strings.IndexByte(s, '\\') >= 0 {
			out := make([]byte, 0, len(s))
			for i := 0; i < len(s); i++ {
				if s[i] == '\\' && i+1 < len(s) {
					i++
				}
				out = append(out, s[i])
			}
			s = string(out)
		}
	}
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(c))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// parseTime reads a CloudEvents time.
func parseTime(s string) (time.Time, error) { return time.Parse(time.RFC3339Nano, s) }
