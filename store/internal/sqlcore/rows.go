package sqlcore

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
)

// Columns are scanned by types of our own: drivers lend their buffers and
// differ in whether they hand over text or bytes.

// idColumn takes 16 bytes or the text of a UUID.
type idColumn struct {
	id    outbox.ID
	valid bool
}

func (c *idColumn) Scan(src any) error {
	c.valid = src != nil
	switch v := src.(type) {
	case nil:
		c.id = outbox.ID{}
		return nil
	case []byte:
		if len(v) == len(c.id) {
			copy(c.id[:], v)
			return nil
		}
		return c.id.UnmarshalText(v)
	case string:
		id, err := uuid.Parse(v)
		c.id = id
		return err
	case [16]byte:
		c.id = v
		return nil
	}
	return fmt.Errorf("column holds a %T, not an id", src)
}

// SetID does what Scan does, without a box for the value.
func (c *idColumn) SetID(id outbox.ID) { c.id, c.valid = id, true }

// bytesColumn copies; NULL is nil, and no bytes are empty but not nil.
type bytesColumn []byte

func (c *bytesColumn) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*c = nil
	case []byte:
		*c = append(make([]byte, 0, len(v)), v...)
	case string:
		*c = append(make([]byte, 0, len(v)), v...)
	default:
		return fmt.Errorf("column holds a %T, not bytes", src)
	}
	return nil
}

// textColumn: NULL is "". Most rows repeat the text of the one before, which is
// kept then.
type textColumn string

func (c *textColumn) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*c = ""
	case string:
		*c = textColumn(v)
	case []byte:
		if string(v) != string(*c) {
			*c = textColumn(v)
		}
	default:
		return fmt.Errorf("column holds a %T, not text", src)
	}
	return nil
}

// intColumn is a number or NULL.
type intColumn struct {
	Int64 int64
	Valid bool
}

func (c *intColumn) Scan(src any) error {
	*c = intColumn{}
	switch v := src.(type) {
	case nil:
	case int64:
		*c = intColumn{v, true}
	case []byte:
		return c.parse(string(v))
	case string:
		return c.parse(v)
	default:
		return fmt.Errorf("column holds a %T, not a number", src)
	}
	return nil
}

// SetInt does what Scan does, without a box for the value.
func (c *intColumn) SetInt(v int64) { *c = intColumn{v, true} }

func (c *intColumn) parse(s string) (err error) {
	c.Int64, err = strconv.ParseInt(s, 10, 64)
	c.Valid = err == nil
	return err
}

// hintColumn takes a tid as text, "(block,place)".
type hintColumn uint64

func (c *hintColumn) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*c = 0
	case string:
		*c = hintColumn(ParseHint(v))
	case []byte:
		*c = hintColumn(ParseHint(string(v)))
	default:
		return fmt.Errorf("column holds a %T, not a tid", src)
	}
	return nil
}

// ParseHint reads a tid; 0 if it is none, which costs no more than time.
func ParseHint(s string) uint64 {
	block, place, ok := strings.Cut(strings.Trim(s, "()"), ",")
	b, err := strconv.ParseUint(block, 10, 32)
	p, err2 := strconv.ParseUint(place, 10, 16)
	if !ok || err != nil || err2 != nil {
		return 0
	}
	return b<<16 | p
}

// row is one message as it is read: the columns of {row}.
type row struct {
	pos, lane                               int64
	id                                      idColumn
	keyHash                                 intColumn
	key, headers, body, extensions          bytesColumn
	transport, kind, destination, content   textColumn
	tenant, source, subject, dataschema     textColumn
	correlation, causation, parent, tracing textColumn
	lastError                               textColumn
	deliverAt, createdAt, ceTime, retryAt   intColumn
	envelope, attempts                      int64
}

// dest are the scan targets, followed by those of further columns.
func (r *row) dest(before []any, after ...any) []any {
	dst := append(before, &r.pos, &r.lane, &r.id, &r.keyHash, &r.key, &r.transport, &r.kind, &r.destination, &r.content, &r.headers, &r.body,
		&r.deliverAt, &r.createdAt, &r.tenant, &r.envelope, &r.source, &r.subject, &r.ceTime, &r.dataschema, &r.extensions,
		&r.correlation, &r.causation, &r.parent, &r.tracing, &r.attempts, &r.lastError, &r.retryAt)
	return append(dst, after...)
}

func instant(us intColumn) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return time.UnixMicro(us.Int64).UTC()
}

// nullTime is NULL for the zero time.
func nullTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// ceiling is an expiry as it is stored: never earlier than t.
func ceiling(t time.Time) int64 { return outbox.RoundUp(t).UnixMicro() }

// record decodes the row as far as it can be decoded. The bytes are the
// record's from now on.
func (r *row) record() (outbox.Record, error) {
	body, envelope := bodyOf(r.body, r.envelope)
	rec := outbox.Record{
		ID:        r.id.id,
		Transport: string(r.transport),
		Type:      string(r.kind),
		CreatedAt: instant(r.createdAt),
		Attempts:  int(r.attempts),
		LastError: string(r.lastError),
		TenantID:  string(r.tenant),
		Message: outbox.Message{
			Destination: string(r.destination),
			ContentType: string(r.content),
			Body:        body,
			Key:         r.key,
			DeliverAt:   instant(r.deliverAt),
			Envelope:    outbox.Envelope(envelope),
			Event: outbox.Event{
				Source: string(r.source), Subject: string(r.subject), DataSchema: string(r.dataschema), Time: instant(r.ceTime),
			},
			Context: outbox.ContextFields{
				CorrelationID: string(r.correlation), CausationID: string(r.causation),
				TraceParent: string(r.parent), TraceState: string(r.tracing),
			},
		},
	}
	if r.key != nil {
		rec.Lane = outbox.Lane(r.lane)
	}
	return rec, Stored{
		Headers: r.headers, Extensions: r.extensions, Envelope: envelope, Attempts: r.attempts, Keyed: r.keyHash.Valid, KeyHash: r.keyHash.Int64,
	}.Decode(&rec)
}

// Stored is what of a row needs more than copying.
type Stored struct {
	Headers, Extensions []byte // the record's from now on
	Envelope, Attempts  int64
	Keyed               bool // key_hash is not NULL
	KeyHash             int64
}

// Decode completes rec, whose other fields have been read, and checks what other
// programs may have written.
func (r Stored) Decode(rec *outbox.Record) (err error) {
	m := &rec.Message
	if m.Headers, err = outbox.DecodeHeaders(r.Headers); err != nil {
		return err
	}
	if m.Event.Extensions, err = outbox.DecodeExtensions(r.Extensions); err != nil {
		return err
	}
	switch {
	case r.Envelope < 0 || r.Envelope > int64(outbox.Raw):
		return fmt.Errorf("stored envelope %d is unknown to this program: upgrade it or repair the row", r.Envelope)
	case rec.Transport == "" || rec.Type == "" || m.Destination == "":
		return fmt.Errorf("stored transport, type or destination is empty: repair the row")
	case r.Attempts < 0 || r.Attempts >= math.MaxInt32:
		return fmt.Errorf("stored attempts are %d, limit 0 to %d: repair the row", r.Attempts, math.MaxInt32-1)
	case (m.Key != nil) != r.Keyed:
		return fmt.Errorf("stored key_hash and ordering_key are not both NULL or both set: repair the row")
	case m.Key != nil && outbox.KeyHash(m.Key) != r.KeyHash:
		return fmt.Errorf("stored key_hash %d is not the hash of the ordering key, %d: repair the row", r.KeyHash, outbox.KeyHash(m.Key))
	}
	return nil
}
