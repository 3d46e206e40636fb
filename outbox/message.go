package outbox

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits that hold on every engine, in bytes.
const (
	MaxName     = 255     // transport, type, tenant, content type, correlation and causation id
	MaxAddress  = 1024    // destination, CloudEvents source, subject and dataschema, header and extension names
	MaxKey      = 1024    // ordering key
	MaxState    = 4096    // W3C tracestate
	MaxReason   = 4096    // a stored failure reason; longer ones are cut
	DefaultSize = 1 << 20 // a whole message, unless configured otherwise
)

// Envelope says how a message is laid out on the wire.
type Envelope uint8

const (
	// Binary puts the CloudEvents attributes into native headers and the body
	// into the payload (CloudEvents 1.0.2, binary content mode). The zero
	// value.
	Binary Envelope = iota
	// Structured is reserved for the CloudEvents structured content mode.
	Structured
	// Raw sends headers and body as they are, without CloudEvents headers.
	Raw
)

// String returns "binary", "structured" or "raw".
func (e Envelope) String() string {
	switch e {
	case Binary:
		return "binary"
	case Structured:
		return "structured"
	case Raw:
		return "raw"
	}
	return fmt.Sprintf("envelope(%d)", uint8(e))
}

// Header is one native header. Names keep their case; values are any bytes.
type Header struct {
	Name  string
	Value []byte
}

// Event holds the CloudEvents attributes beside id and type, which are the
// record's, and datacontenttype, which is the message's ContentType.
type Event struct {
	// Source is the CloudEvents source, a URI reference. Required unless the
	// envelope is Raw; Publish fills it from Options.Source.
	Source string
	// Subject is optional.
	Subject string
	// Time is when the event happened, truncated to microseconds UTC. Zero:
	// none; Publish fills it with the time of the call.
	Time time.Time
	// DataSchema is an optional URI.
	DataSchema string
	// Extensions are further attributes, in order, duplicates refused. Names
	// are lower-case letters and digits; values are text.
	Extensions []Extension
}

// Extension is one CloudEvents extension attribute.
type Extension struct{ Name, Value string }

// ContextFields carries correlation and trace across the table (S7). Publish
// fills it from Options.Context; it is stored with the row and sent as
// headers, the same on every retry and replay.
type ContextFields struct {
	CorrelationID string // "" = none
	CausationID   string // "" = none
	TraceParent   string // W3C traceparent; "" = none
	TraceState    string // W3C tracestate; "" = none
}

// Message is what goes to the broker. Its memory is the caller's until Enlist
// has copied it.
type Message struct {
	// Destination is the transport's own address: subject, topic, exchange and
	// routing key, path. Required.
	Destination string
	// Headers are native headers, in order, duplicates kept.
	Headers []Header
	// ContentType is the media type of Body; "" means none.
	ContentType string
	// Body is the payload. nil and empty are kept apart.
	Body []byte
	// Key is the ordering key: messages of one key reach the broker in the
	// order in which they were enlisted. nil means unordered; an empty,
	// non-nil key is refused.
	Key []byte
	// DeliverAt holds this message back until then, rounded up to
	// microseconds. It does not hold back its key. Zero means at once.
	DeliverAt time.Time
	// Event holds the CloudEvents attributes.
	Event Event
	// Context holds correlation and trace.
	Context ContextFields
	// Envelope is the wire layout.
	Envelope Envelope
	// Native edits the broker's own message just before a direct send. It
	// cannot be stored: Publish and Enlist refuse it with ErrNotPersistable.
	Native func(any) error
}

// Size is the number of bytes that count against the configured maximum:
// destination, headers, content type, body, key and event attributes.
func (m *Message) Size() int {
	n := len(m.Destination) + len(m.ContentType) + len(m.Body) + len(m.Key) +
		len(m.Event.Source) + len(m.Event.Subject) + len(m.Event.DataSchema)
	for i := range m.Headers {
		n += len(m.Headers[i].Name) + len(m.Headers[i].Value)
	}
	for _, x := range m.Event.Extensions {
		n += len(x.Name) + len(x.Value)
	}
	return n
}

// Clone returns a copy that shares no memory with m. Native is copied as it
// is.
func (m *Message) Clone() Message {
	c := *m
	c.Body = bytes.Clone(m.Body)
	c.Key = bytes.Clone(m.Key)
	if m.Headers != nil {
		c.Headers = make([]Header, len(m.Headers))
		for i, h := range m.Headers {
			c.Headers[i] = Header{h.Name, bytes.Clone(h.Value)}
		}
	}
	if m.Event.Extensions != nil {
		c.Event.Extensions = append([]Extension(nil), m.Event.Extensions...)
	}
	return c
}

// Normalize prepares rec for storing, as every [Enlister] must before its
// first statement: it checks the rules S1-S6 and brings the times to
// microseconds UTC, CreatedAt and Event.Time truncated, DeliverAt rounded up
// (a database that rounds by itself would send early). maxSize bounds
// Message.Size; 0 means [DefaultSize]. It copies no memory. Errors are
// [ErrInvalidArgument], [ErrNotPersistable] and [ErrTooLarge].
func (rec *Record) Normalize(maxSize int) error {
	m := &rec.Message
	if maxSize == 0 {
		maxSize = DefaultSize
	}
	switch {
	case !isV7(rec.ID):
		return invalid("id %s is not a UUIDv7: use outbox.NewID", rec.ID)
	case rec.CreatedAt.Truncate(time.Microsecond).IsZero():
		return invalid("CreatedAt is zero: set it to the current time")
	case rec.Lane != Unordered || rec.Attempts != 0 || rec.LastError != "":
		return invalid("Lane, Attempts and LastError belong to the store: leave them zero in a new record")
	case m.Native != nil:
		return fmt.Errorf("%w: message %s has a native callback, which no row can hold: drop Native or send directly", ErrNotPersistable, rec.ID)
	case m.Envelope > Raw:
		return invalid("envelope %d is unknown: use Binary, Structured or Raw", m.Envelope)
	case m.Key != nil && len(m.Key) == 0:
		return invalid("ordering key is empty: use nil for an unordered message")
	case len(m.Key) > MaxKey:
		return invalid("ordering key has %d bytes, limit %d: use a shorter key or its hash", len(m.Key), MaxKey)
	case m.Envelope != Raw && m.Event.Source == "":
		return invalid("CloudEvents source is empty: set Options.Source or Message.Event.Source, or use the Raw envelope")
	}
	if size := m.Size(); size > maxSize {
		return fmt.Errorf("%w: message %s has %d bytes, limit %d: send a reference to the data or raise MaxBytes", ErrTooLarge, rec.ID, size, maxSize)
	}
	for _, f := range [...]struct {
		name, value string
		limit       int
		required    bool
	}{
		{"transport", rec.Transport, MaxName, true},
		{"type", rec.Type, MaxName, true},
		{"destination", m.Destination, MaxAddress, true},
		{"tenant", rec.TenantID, MaxName, false},
		{"content type", m.ContentType, MaxName, false},
		{"CloudEvents source", m.Event.Source, MaxAddress, false},
		{"CloudEvents subject", m.Event.Subject, MaxAddress, false},
		{"CloudEvents dataschema", m.Event.DataSchema, MaxAddress, false},
		{"correlation id", m.Context.CorrelationID, MaxName, false},
		{"causation id", m.Context.CausationID, MaxName, false},
		{"traceparent", m.Context.TraceParent, MaxName, false},
		{"tracestate", m.Context.TraceState, MaxState, false},
	} {
		if f.required && f.value == "" {
			return invalid("%s is empty: every message needs one", f.name)
		}
		if err := checkText(f.name, f.value, f.limit); err != nil {
			return err
		}
	}
	for i := range m.Headers {
		if m.Headers[i].Name == "" {
			return invalid("header %d has an empty name", i)
		}
		if err := checkText("header name", m.Headers[i].Name, MaxAddress); err != nil {
			return err
		}
	}
	if err := checkExtensions(m.Event.Extensions); err != nil {
		return err
	}
	rec.CreatedAt = rec.CreatedAt.UTC().Truncate(time.Microsecond)
	if !m.Event.Time.IsZero() {
		m.Event.Time = m.Event.Time.UTC().Truncate(time.Microsecond)
	}
	m.DeliverAt = RoundUp(m.DeliverAt)
	for _, t := range [...]time.Time{rec.CreatedAt, m.Event.Time, m.DeliverAt} {
		if !t.IsZero() && (t.Year() < 1 || t.Year() > 9999) {
			return invalid("time %d-%02d-%02d is outside the years 1 to 9999", t.Year(), t.Month(), t.Day())
		}
	}
	return nil
}

// RoundUp brings t to microseconds UTC, never earlier than t. The zero time
// stays zero.
func RoundUp(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	u := t.UTC().Truncate(time.Microsecond)
	if u.Before(t) {
		u = u.Add(time.Microsecond)
	}
	return u
}

// CleanReason makes an error text storable on every engine: valid UTF-8
// without NUL bytes, at most [MaxReason] bytes.
func CleanReason(s string) string {
	if len(s) > MaxReason {
		n := MaxReason
		for n > MaxReason-utf8.UTFMax && !utf8.RuneStart(s[n]) {
			n-- // do not cut through a character
		}
		s = s[:n]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	for len(s) > MaxReason {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidArgument}, args...)...)
}

func checkText(name, s string, limit int) error {
	if len(s) > limit {
		return invalid("%s has %d bytes, limit %d", name, len(s), limit)
	}
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] == 0x7f {
			return invalid("%s %q has a control byte at %d: remove it", name, s, i)
		}
	}
	if !utf8.ValidString(s) {
		return invalid("%s %q is not valid UTF-8", name, s)
	}
	return nil
}

// reserved are the CloudEvents context attributes that have fields of their
// own, and the one name that JSON events use for the payload.
var reserved = map[string]bool{
	"id": true, "source": true, "specversion": true, "type": true, "time": true, "subject": true,
	"datacontenttype": true, "dataschema": true, "data": true,
}

func checkExtensions(xs []Extension) error {
	seen := make(map[string]bool, len(xs))
	for _, x := range xs {
		if x.Name == "" || len(x.Name) > MaxName || strings.Trim(x.Name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return invalid("CloudEvents extension name %q: use 1 to %d lower-case letters and digits", x.Name, MaxName)
		}
		if reserved[x.Name] {
			return invalid("CloudEvents extension name %q is a context attribute: set its own field", x.Name)
		}
		if seen[x.Name] {
			return invalid("CloudEvents extension %q stands twice", x.Name)
		}
		seen[x.Name] = true
		if err := checkText("CloudEvents extension "+x.Name, x.Value, DefaultSize); err != nil {
			return err
		}
	}
	return nil
}
