package outbox

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Codec turns values of one Go type into bytes and back: two functions and
// the media type of what they write. Both functions are required, are called
// concurrently, and own neither what they are given nor what they return
// beyond the call: Publish copies what Encode returned before its transaction
// can commit, and Decode's body is the caller's. [JSON] and [Bytes] are codecs;
// the example shows one for protobuf.
type Codec[T any] struct {
	// ContentType is the media type of the encoded form; "" means none. At
	// most [MaxName] bytes.
	ContentType string
	Encode      func(T) ([]byte, error)
	Decode      func([]byte) (T, error)
}

// JSON is the codec of encoding/json, with content type application/json.
func JSON[T any]() Codec[T] {
	return Codec[T]{
		ContentType: "application/json",
		Encode:      func(v T) ([]byte, error) { return json.Marshal(v) },
		Decode: func(b []byte) (v T, err error) {
			err = json.Unmarshal(b, &v)
			return v, err
		},
	}
}

// Bytes is the codec of bodies that are bytes already. Nothing is copied: a
// decoded value is the body it was decoded from. nil and empty are kept apart.
func Bytes(contentType string) Codec[[]byte] {
	same := func(b []byte) ([]byte, error) { return b, nil }
	return Codec[[]byte]{ContentType: contentType, Encode: same, Decode: same}
}

// Types is a set of wire types, each a name and a version with a codec for one
// Go type. Make one with [NewTypes], fill it with [Register] when the program
// starts, and share it: it is safe for concurrent use, and types may be added
// at any time.
type Types struct {
	mu     sync.RWMutex
	byWire map[string]*wireType
	byGo   map[reflect.Type][]*wireType
}

type wireType struct {
	name        string // the wire type
	goType      reflect.Type
	contentType string
	encode      func(any) ([]byte, error)
	decode      any // func([]byte) (T, error)
}

// NewTypes returns an empty set.
func NewTypes() *Types {
	return &Types{byWire: map[string]*wireType{}, byGo: map[reflect.Type][]*wireType{}}
}

// Register adds the wire type name + ".v" + version for the Go type T:
//
//	err := outbox.Register(types, "shop.order.placed", 1, outbox.JSON[OrderPlaced]())
//
// The version is at least 1 and the wire type at most [MaxName] bytes. A Go
// type may be registered under several wire types; Publish then needs
// [Publication.Type] to choose. T is matched exactly: a *T is another type.
//
// An empty name, a wire type that is registered already or a codec without one
// of its functions is [ErrInvalidArgument], and the set is unchanged.
func Register[T any](ts *Types, name string, version int, c Codec[T]) error {
	wire := fmt.Sprintf("%s.v%d", name, version)
	switch {
	case ts == nil || ts.byWire == nil:
		return invalid("register %q: Types was not made: use outbox.NewTypes", wire)
	case name == "":
		return invalid("register a wire type for %s: its name is empty: use a stable name such as shop.order.placed", reflect.TypeFor[T]())
	case version < 1:
		return invalid("register %q: version is %d: versions count from 1", name, version)
	case c.Encode == nil || c.Decode == nil:
		return invalid("register %q: the codec needs both Encode and Decode", wire)
	}
	if err := checkText("wire type", wire, MaxName); err != nil {
		return err
	}
	if err := checkText("content type", c.ContentType, MaxName); err != nil {
		return err
	}
	w := &wireType{
		name:        wire,
		goType:      reflect.TypeFor[T](),
		contentType: c.ContentType,
		encode: func(v any) ([]byte, error) {
			t, ok := v.(T)
			if !ok {
				return nil, invalid("wire type %q encodes %s, the value is a %T", wire, reflect.TypeFor[T](), v)
			}
			return call(wire, "encode", c.Encode, t)
		},
		decode: func(b []byte) (T, error) { return call(wire, "decode", c.Decode, b) },
	}

	ts.mu.Lock()
	defer ts.mu.Unlock()
	if old := ts.byWire[wire]; old != nil {
		return invalid("register %q for %s: it is registered already, for %s: use another name or version", wire, w.goType, old.goType)
	}
	ts.byWire[wire] = w
	ts.byGo[w.goType] = append(ts.byGo[w.goType], w)
	return nil
}

// Decode decodes the body of a message of the given wire type.
//
// [ErrUnknownType]: wireType is not registered; the text lists what is.
// [ErrInvalidArgument]: it is registered for another Go type than T. Errors
// and panics of the codec come back wrapped, with the zero T. Whether the
// value shares memory with body is the codec's affair: [JSON] copies, [Bytes]
// does not.
func Decode[T any](ts *Types, wireType string, body []byte) (T, error) {
	var zero T
	w, err := ts.find(wireType)
	if err != nil {
		return zero, err
	}
	decode, ok := w.decode.(func([]byte) (T, error))
	if !ok {
		return zero, invalid("wire type %q decodes to %s, not to %s", wireType, w.goType, reflect.TypeFor[T]())
	}
	return decode(body)
}

// call runs a codec function; a panic in it becomes an error, so that a bad
// value cannot take the service down.
func call[A, B any](wire, verb string, f func(A) (B, error), a A) (b B, err error) {
	defer func() {
		if r := recover(); r != nil {
			var zero B
			b = zero
			if cause, ok := r.(error); ok {
				err = fmt.Errorf("%s %q: codec panicked: %w", verb, wire, cause)
			} else {
				err = fmt.Errorf("%s %q: codec panicked: %v", verb, wire, r)
			}
		}
	}()
	b, err = f(a)
	if err != nil {
		var zero B
		return zero, fmt.Errorf("%s %q: %w", verb, wire, err)
	}
	return b, nil
}

// find returns the wire type of that name.
func (ts *Types) find(wire string) (*wireType, error) {
	if ts == nil {
		return nil, fmt.Errorf("%w: wire type %q: Types is nil: use outbox.NewTypes", ErrUnknownType, wire)
	}
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	if w := ts.byWire[wire]; w != nil {
		return w, nil
	}
	return nil, fmt.Errorf("%w: wire type %q: %s", ErrUnknownType, wire, ts.list())
}

// forValue returns the one wire type of v's Go type.
func (ts *Types) forValue(v any) (*wireType, error) {
	t := reflect.TypeOf(v)
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	switch ws := ts.byGo[t]; len(ws) {
	case 0:
		return nil, fmt.Errorf("%w: Go type %s: %s", ErrUnknownType, t, ts.near(t))
	case 1:
		return ws[0], nil
	default:
		names := make([]string, len(ws))
		for i, w := range ws {
			names[i] = w.name
		}
		return nil, invalid("Go type %s has %d wire types (%s): choose one with Publication.Type", t, len(ws), strings.Join(names, ", "))
	}
}

// near says what the caller may have meant instead of t.
func (ts *Types) near(t reflect.Type) string {
	switch {
	case t == nil:
	case t.Kind() == reflect.Pointer && len(ts.byGo[t.Elem()]) > 0:
		return fmt.Sprintf("%s is registered: publish the value, not a pointer to it", t.Elem())
	case len(ts.byGo[reflect.PointerTo(t)]) > 0:
		return fmt.Sprintf("%s is registered: publish a pointer", reflect.PointerTo(t))
	}
	return ts.list()
}

// listed bounds the list of registered types in an error text.
const listed = 50

// list names what is registered. The caller holds mu.
func (ts *Types) list() string {
	if len(ts.byWire) == 0 {
		return "nothing is registered: use outbox.Register"
	}
	names := make([]string, 0, len(ts.byWire))
	for name, w := range ts.byWire {
		names = append(names, fmt.Sprintf("%s (%s)", name, w.goType))
	}
	slices.Sort(names)
	more := ""
	if n := len(names) - listed; n > 0 {
		names, more = names[:listed], fmt.Sprintf(" and %d more", n)
	}
	return "registered are " + strings.Join(names, ", ") + more
}
