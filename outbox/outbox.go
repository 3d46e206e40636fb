package outbox

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// Publication is one message to publish.
type Publication struct {
	// Value is what the codec of its wire type encodes into the body.
	// Required; a nil pointer is refused.
	Value any
	// Type is the wire type, name and version. Defaults to the one that is
	// registered for Value's Go type; where there are several, it is
	// required.
	Type string
	// Transport is the route. Defaults to [Options.Transport]; one of them is
	// required.
	Transport string
	// TenantID is the tenant; "" means none.
	TenantID string
	// ID is the message's UUIDv7. Defaults to [NewID].
	ID ID
	// Message is the rest of the message. Body must be nil: the codec fills
	// it, and ContentType too unless it is set. Event.Time defaults to the time
	// of the call, Event.Source to [Options.Source], Context to what
	// [Options.Context] returns.
	Message Message
}

// Options configure an [Outbox].
type Options struct {
	// Types are the wire types that can be published. Defaults to a new,
	// empty set, to be filled through [Outbox.Types].
	Types *Types
	// Transport is the route of publications that name none. Defaults to "":
	// every publication names its own. At most [MaxName] bytes.
	Transport string
	// Source is the CloudEvents source of messages that have none, a URI
	// reference such as "/shop/orders". Defaults to "": every message that is
	// not Raw brings its own. At most [MaxAddress] bytes.
	Source string
	// MaxBytes bounds [Message.Size]; at most 1 GiB. Defaults to
	// [DefaultSize], 1 MiB.
	MaxBytes int
	// Context takes correlation and trace from the context of a call, once a
	// call. What a message's own Context sets wins: correlation and causation
	// id each for itself, traceparent and tracestate together. Tracing must
	// never break business: if Context panics nothing is taken, and of what it
	// returns a malformed value is dropped, tracestate along with its
	// traceparent. Defaults to nil: nothing is taken.
	Context func(context.Context) ContextFields
}

// maxMaxBytes keeps every length of the stored form within 32 bits.
const maxMaxBytes = 1 << 30

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Types == nil {
		c.Types = NewTypes()
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultSize
	}
	return c
}

func (o *Options) validate() error {
	if o.Types.byWire == nil {
		return invalid("Options.Types was not made: use outbox.NewTypes")
	}
	if o.MaxBytes < 1 || o.MaxBytes > maxMaxBytes {
		return invalid("Options.MaxBytes is %d: use 1 to %d", o.MaxBytes, maxMaxBytes)
	}
	if err := checkText("Options.Transport", o.Transport, MaxName); err != nil {
		return err
	}
	return checkText("Options.Source", o.Source, MaxAddress)
}

// Outbox is the writing side: it turns values into messages and writes them
// through the caller's own transaction, of the native type Tx. Make one with
// [New]. It is safe for concurrent use, as far as its Enlister is, and starts
// nothing: a relay delivers.
type Outbox[Tx any] struct {
	enlister Enlister[Tx]
	opts     Options
}

// New returns an outbox that writes through e. opts may be nil; later changes
// of it have no effect. Errors are [ErrInvalidArgument].
func New[Tx any](e Enlister[Tx], opts *Options) (*Outbox[Tx], error) {
	if isNil(e) {
		return nil, invalid("the Enlister is nil: pass a store")
	}
	o := &Outbox[Tx]{enlister: e, opts: opts.withDefaults()}
	if err := o.opts.validate(); err != nil {
		return nil, err
	}
	return o, nil
}

// Types returns the wire types that the outbox publishes.
func (o *Outbox[Tx]) Types() *Types { return o.opts.Types }

// Publish writes one message inside tx and returns its id. It is sent if and
// when tx commits; a rollback leaves nothing. All memory of p is the caller's
// again when it returns.
//
// Lock or update the rows of the aggregate before you publish, or publish as
// the last statement before commit: the order of a key's messages is the order
// of their inserts, and only a lock makes that the order of the commits. A
// [UnitOfWork] sees to it.
//
// Before any statement, so that nothing is written and tx stays usable:
//   - [ErrNotPersistable]: the message has a Native callback.
//   - [ErrUnknownType]: the Go type or wire type is not registered; the text
//     lists what is.
//   - [ErrTooLarge]: over [Options.MaxBytes].
//   - [ErrInvalidArgument]: tx or the value is nil; Message.Body is set; the
//     Go type has several wire types and Type is empty; no transport; a W3C
//     value in Message.Context is malformed; or [Record.Normalize] refuses the
//     message.
//   - an error or a panic of the codec, wrapped.
//
// Errors of the store are those of [Enlister].Enlist, wrapped. An id that Publish
// draws is new, and stores need not look for it: a retry of the whole transaction
// publishes under another id. To have a repeat refused while the first message is
// pending, bring the id in [Publication.ID].
func (o *Outbox[Tx]) Publish(ctx context.Context, tx Tx, p Publication) (ID, error) {
	if err := checkTx(tx); err != nil {
		return ID{}, err
	}
	rec, err := o.record(&p, time.Now(), o.ambient(ctx))
	if err != nil {
		return ID{}, fmt.Errorf("publish: %w", err)
	}
	if err := o.enlister.Enlist(ctx, tx, rec); err != nil {
		return ID{}, fmt.Errorf("publish %q: %w", rec.Type, err)
	}
	return rec.ID, nil
}

// PublishAll is Publish for many messages, in argument order, by one Enlist:
// all or none. Every publication is encoded and checked before the first
// statement; an error names the index of the first bad one. An id that stands
// twice is [ErrDuplicateID]. No publications are no error.
func (o *Outbox[Tx]) PublishAll(ctx context.Context, tx Tx, ps []Publication) ([]ID, error) {
	if err := checkTx(tx); err != nil {
		return nil, err
	}
	recs, err := o.records(ctx, ps)
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	if err := o.enlister.Enlist(ctx, tx, recs...); err != nil {
		return nil, fmt.Errorf("publish %d messages: %w", len(recs), err)
	}
	return ids(recs), nil
}

// records encodes and checks every publication, or none.
func (o *Outbox[Tx]) records(ctx context.Context, ps []Publication) ([]Record, error) {
	if len(ps) == 0 {
		return nil, nil
	}
	now, fields := time.Now(), o.ambient(ctx)
	recs := make([]Record, len(ps))
	var seen map[ID]int // ids that callers brought; ours are new
	for i := range ps {
		rec, err := o.record(&ps[i], now, fields)
		if err != nil {
			return nil, fmt.Errorf("publication %d of %d: %w", i, len(ps), err)
		}
		if ps[i].ID != (ID{}) {
			if first, twice := seen[rec.ID]; twice {
				return nil, fmt.Errorf("publication %d of %d: %w: %s is publication %d already", i, len(ps), ErrDuplicateID, rec.ID, first)
			}
			if seen == nil {
				seen = make(map[ID]int)
			}
			seen[rec.ID] = i
		}
		recs[i] = rec
	}
	return recs, nil
}

// record encodes and checks one publication. The record borrows p's memory.
func (o *Outbox[Tx]) record(p *Publication, now time.Time, fields ContextFields) (Record, error) {
	rec := Record{
		ID:        p.ID,
		Transport: p.Transport,
		CreatedAt: now,
		TenantID:  p.TenantID,
		Message:   p.Message,
	}
	m := &rec.Message
	switch {
	case m.Native != nil:
		return rec, fmt.Errorf("%w: Message.Native is set, which no row can hold: drop it or send directly", ErrNotPersistable)
	case m.Body != nil:
		return rec, invalid("Message.Body is set: put the value into Publication.Value, a codec fills the body")
	case p.Value == nil:
		return rec, invalid("Publication.Value is nil")
	}
	if v := reflect.ValueOf(p.Value); v.Kind() == reflect.Pointer && v.IsNil() {
		return rec, invalid("Publication.Value is a nil %T", p.Value)
	}
	if rec.Transport == "" {
		rec.Transport = o.opts.Transport
	}
	if rec.Transport == "" {
		return rec, invalid("transport is empty: set Publication.Transport or Options.Transport")
	}
	if err := mergeContext(&m.Context, fields); err != nil {
		return rec, err
	}
	var w *wireType
	var err error
	if p.Type == "" {
		w, err = o.opts.Types.forValue(p.Value)
	} else {
		w, err = o.opts.Types.find(p.Type)
	}
	if err != nil {
		return rec, err
	}
	if m.Body, err = w.encode(p.Value); err != nil {
		return rec, err
	}
	rec.Type = w.name
	if m.ContentType == "" {
		m.ContentType = w.contentType
	}
	if m.Event.Source == "" {
		m.Event.Source = o.opts.Source
	}
	if m.Event.Time.IsZero() {
		m.Event.Time = now
	}
	if rec.ID == (ID{}) {
		rec.ID = NewID()
		rec.drawn = rec.ID
	}
	return rec, rec.Normalize(o.opts.MaxBytes)
}

// ambient is what Options.Context returns, without what is malformed.
func (o *Outbox[Tx]) ambient(ctx context.Context) (f ContextFields) {
	if o.opts.Context == nil {
		return f
	}
	defer func() {
		if recover() != nil {
			f = ContextFields{}
		}
	}()
	f = o.opts.Context(ctx)
	if checkText("correlation id", f.CorrelationID, MaxName) != nil {
		f.CorrelationID = ""
	}
	if checkText("causation id", f.CausationID, MaxName) != nil {
		f.CausationID = ""
	}
	if checkTraceParent(f.TraceParent) != nil {
		f.TraceParent = ""
	}
	if f.TraceParent == "" || checkTraceState(f.TraceState) != nil {
		f.TraceState = ""
	}
	return f
}

// ids returns the ids of recs, in order.
func ids(recs []Record) []ID {
	out := make([]ID, len(recs))
	for i := range recs {
		out[i] = recs[i].ID
	}
	return out
}

func checkTx[Tx any](tx Tx) error {
	if isNil(tx) {
		return invalid("the transaction is nil: begin one")
	}
	return nil
}

// isNil reports whether v is nil or an interface that holds a nil pointer.
func isNil[T any](v T) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice, reflect.UnsafePointer:
		return r.IsNil()
	}
	return false
}
