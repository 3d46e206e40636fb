package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider/outbox"
)

type deadShowCmd struct {
	dbFlags
	ID   string `arg:"" name:"id" help:"The id, as dead ls shows it."`
	JSON bool   `name:"json" help:"Print one JSON object, body and header values in base64."`
	Body bool   `help:"Show the body and the values of the headers too."`
}

// Run shows one dead letter: everything that is small first, the payload on
// demand.
func (c *deadShowCmd) Run(p *program) error {
	ids, err := parseIDs([]string{c.ID})
	if err != nil {
		return err
	}
	o, err := p.operator(&commandFlags{})
	if err != nil {
		return err
	}
	defer o.Close()
	var found *outbox.DeadLetter
	var bad error
	err = o.scanDead("", func(d *outbox.DeadLetter, b error) error {
		if d.Record.ID != ids[0] {
			return nil
		}
		found, bad = d, b
		return errStop
	})
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("%s is no dead letter: it was retried or discarded, or never was one; postrider dead ls shows those there are", ids[0])
	}
	if !c.JSON {
		writeDead(o.stdout, found, bad, c.Body)
	}
	if c.Body {
		err = o.readBody(found)
	}
	if c.JSON {
		view := newDeadView(found, bad, c.Body)
		if c.Body && err == nil {
			view.Body = found.Record.Message.Body
		}
		if perr := printJSON(o.stdout, view); perr != nil {
			return perr
		}
	} else if c.Body && err == nil {
		writeBody(o.stdout, found.Record.Message.Body)
	}
	return err
}

// deadView is a dead letter with all there is of it in JSON; names and meanings
// are stable.
type deadView struct {
	deadRow
	Lane          outbox.Lane       `json:"lane"`
	Position      int64             `json:"position"`
	Created       *time.Time        `json:"created_at"`
	DeliverAt     *time.Time        `json:"deliver_at"`
	LastError     string            `json:"last_error"`
	Tenant        string            `json:"tenant"`
	Envelope      string            `json:"envelope"`
	ContentType   string            `json:"content_type"`
	Source        string            `json:"source"`
	Subject       string            `json:"subject"`
	Time          *time.Time        `json:"time"`
	DataSchema    string            `json:"dataschema"`
	Extensions    map[string]string `json:"extensions"`
	CorrelationID string            `json:"correlation_id"`
	CausationID   string            `json:"causation_id"`
	TraceParent   string            `json:"traceparent"`
	TraceState    string            `json:"tracestate"`
	Headers       []deadHeader      `json:"headers"`
	Body          any               `json:"body_base64,omitempty"` // with --body: null or text
}

type deadHeader struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	Value any    `json:"value_base64,omitempty"` // with --body
}

func newDeadView(d *outbox.DeadLetter, bad error, values bool) deadView {
	m := &d.Record.Message
	v := deadView{
		deadRow: newDeadRow(d, bad), Lane: d.Lane, Position: d.Pos,
		Created: known(d.Record.CreatedAt), DeliverAt: known(m.DeliverAt), LastError: d.Record.LastError, Tenant: d.Record.TenantID,
		Envelope: m.Envelope.String(), ContentType: m.ContentType,
		Source: m.Event.Source, Subject: m.Event.Subject, Time: known(m.Event.Time), DataSchema: m.Event.DataSchema, Extensions: map[string]string{},
		CorrelationID: m.Context.CorrelationID, CausationID: m.Context.CausationID, TraceParent: m.Context.TraceParent, TraceState: m.Context.TraceState,
		Headers: []deadHeader{},
	}
	for _, x := range m.Event.Extensions {
		v.Extensions[x.Name] = x.Value
	}
	for _, h := range m.Headers {
		dh := deadHeader{Name: h.Name, Bytes: len(h.Value)}
		if values {
			dh.Value = h.Value
		}
		v.Headers = append(v.Headers, dh)
	}
	return v
}

func writeDead(out io.Writer, d *outbox.DeadLetter, bad error, values bool) {
	m := &d.Record.Message
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, safe(text))
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			line(name, t.UTC().Format("2006-01-02T15:04:05.000000Z"))
		}
	}
	line("id", d.Record.ID.String())
	if bad != nil {
		line("cannot be decoded", bad.Error())
	}
	line("route", orUnknown(d.Record.Transport))
	line("type", orUnknown(d.Record.Type))
	line("key", showKey(m.Key))
	line("destination", orUnknown(m.Destination))
	line("reason", d.Reason)
	line("attempts", fmt.Sprint(d.Record.Attempts))
	if d.Record.LastError != d.Reason {
		line("last error", d.Record.LastError)
	}
	at("first failed", d.FirstFailedAt)
	at("died", d.DiedAt)
	if m.Key != nil {
		line("later out", plural(d.LaterOut, "later message of its key", "later messages of its key"))
	}
	line("lane, position", fmt.Sprintf("%d, %d", d.Lane, d.Pos))
	at("created", d.Record.CreatedAt)
	at("deliver at", m.DeliverAt)
	line("tenant", d.Record.TenantID)
	line("envelope", m.Envelope.String())
	line("content type", m.ContentType)
	line("source", m.Event.Source)
	line("subject", m.Event.Subject)
	at("time", m.Event.Time)
	line("dataschema", m.Event.DataSchema)
	for _, x := range m.Event.Extensions {
		line("extension", x.Name+" = "+x.Value)
	}
	line("correlation id", m.Context.CorrelationID)
	line("causation id", m.Context.CausationID)
	line("traceparent", m.Context.TraceParent)
	line("tracestate", m.Context.TraceState)
	for _, h := range m.Headers {
		if values {
			line("header", h.Name+" = "+string(h.Value))
		} else {
			line("header", fmt.Sprintf("%s (%s)", h.Name, plural(int64(len(h.Value)), "byte", "bytes")))
		}
	}
	if !values {
		line("body", "not shown: add --body")
	}
	w.Flush()
}

// writeBody shows text as text, line by line, and anything else as a dump.
func writeBody(out io.Writer, body []byte) {
	switch {
	case body == nil:
		fmt.Fprintln(out, "body: none")
	case len(body) == 0:
		fmt.Fprintln(out, "body: empty")
	case isText([]byte(strings.NewReplacer("\n", "", "\t", "", "\r", "").Replace(string(body)))):
		fmt.Fprintf(out, "body, %s:\n", plural(int64(len(body)), "byte", "bytes"))
		for text := range strings.Lines(string(body)) {
			text = strings.TrimSuffix(text, "\n")
			fmt.Fprintln(out, safe(text))
		}
	default:
		fmt.Fprintf(out, "body, %s:\n%s", plural(int64(len(body)), "byte", "bytes"), hex.Dump(body))
	}
}
