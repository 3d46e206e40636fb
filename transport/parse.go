package transport

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/outbox"
)

// ErrNoEvent: the headers hold no CloudEvents attributes; the message was sent
// in another envelope, or by something else.
var ErrNoEvent = errors.New("no CloudEvents headers")

// Incoming is a message as a consumer finds it in the headers. The payload is
// the broker message's own.
type Incoming struct {
	ID          string // the CloudEvents id: with the consumer's name, the inbox key
	Type        string
	Event       outbox.Event
	ContentType string
	Context     outbox.ContextFields
	Lane        outbox.Lane // 0: not sent from a lane
	Epoch, Pos  int64
}

// Parse reads the headers of a received message: the CloudEvents attributes of
// the binary content mode, and what [HeaderNames] names. Header names are
// compared without case; the order is free, save that extensions come out
// sorted by name. Use [Values] for headers held in a map.
//
// Without the attribute specversion the rest is filled and the error is
// [ErrNoEvent]: a Raw message, whose id is the broker's own header. Attributes
// that are missing, standing twice or malformed, and a specversion other than
// 1.x, are errors as well. The values are not checked beyond that.
func (w *Wire) Parse(headers iter.Seq2[string, string]) (Incoming, error) {
	var in Incoming
	var bad []error
	names := map[string]func(string){
		strings.ToLower(w.binding.ContentType): func(v string) { in.ContentType = v },
		strings.ToLower(w.names.TraceParent):   func(v string) { in.Context.TraceParent = v },
		strings.ToLower(w.names.TraceState):    func(v string) { in.Context.TraceState = v },
		strings.ToLower(w.names.CorrelationID): func(v string) { in.Context.CorrelationID = v },
		strings.ToLower(w.names.CausationID):   func(v string) { in.Context.CausationID = v },
		strings.ToLower(w.names.Lane): func(v string) {
			n, err := strconv.ParseInt(v, 10, 32)
			in.Lane = outbox.Lane(n)
			bad = append(bad, err)
		},
		strings.ToLower(w.names.Epoch): number(&in.Epoch, &bad),
		strings.ToLower(w.names.Pos):   number(&in.Pos, &bad),
	}
	delete(names, "") // omitted ones
	seen := map[string]bool{}
	var version string
	for name, value := range headers {
		low := strings.ToLower(name)
		if set := names[low]; set != nil {
			if !seen[low] { // of a repeated header the first counts
				seen[low] = true
				set(value)
			}
			continue
		}
		attr, ok := strings.CutPrefix(low, w.prefix)
		if !ok || attr == "" {
			continue
		}
		if seen[low] {
			bad = append(bad, fmt.Errorf("CloudEvents attribute %s stands twice", attr))
			continue
		}
		seen[low] = true
		value = w.binding.decode(value)
		switch attr {
		case "specversion":
			version = value
		case "id":
			in.ID = value
		case "source":
			in.Event.Source = value
		case "type":
			in.Type = value
		case "subject":
			in.Event.Subject = value
		case "dataschema":
			in.Event.DataSchema = value
		case "time":
			t, err := parseTime(value)
			if err != nil {
				err = fmt.Errorf("CloudEvents attribute time: %w", err)
			}
			in.Event.Time = t
			bad = append(bad, err)
		default:
			in.Event.Extensions = append(in.Event.Extensions, outbox.Extension{Name: attr, Value: value})
		}
	}
	slices.SortFunc(in.Event.Extensions, func(a, b outbox.Extension) int { return strings.Compare(a.Name, b.Name) })
	if version == "" {
		return in, ErrNoEvent
	}
	if !strings.HasPrefix(version, "1.") {
		bad = append(bad, fmt.Errorf("CloudEvents specversion %q: only 1.x is understood", version))
	}
	for _, a := range [...]struct{ name, value string }{{"id", in.ID}, {"source", in.Event.Source}, {"type", in.Type}} {
		if a.value == "" {
			bad = append(bad, fmt.Errorf("CloudEvents attribute %s is missing", a.name))
		}
	}
	return in, errors.Join(bad...)
}

func number(dst *int64, bad *[]error) func(string) {
	return func(v string) {
		n, err := strconv.ParseInt(v, 10, 64)
		*dst = n
		*bad = append(*bad, err)
	}
}

// Values yields the headers of a map, such as nats.Header and http.Header, in
// no particular order of names.
func Values(h map[string][]string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, values := range h {
			for _, v := range values {
				if !yield(name, v) {
					return
				}
			}
		}
	}
}
