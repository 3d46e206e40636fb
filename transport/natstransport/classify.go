package natstransport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// message lays a delivery out. An error is for good.
func (t *Transport) message(d *transport.Delivery) (*nats.Msg, error) {
	m := &d.Record.Message
	if err := checkSubject(m.Destination); err != nil {
		return nil, err
	}
	hs, err := t.wire.Headers(make([]outbox.Header, 0, len(m.Headers)+len(m.Event.Extensions)+16), d)
	if err != nil {
		return nil, err
	}
	h := make(nats.Header, len(hs)+2)
	for _, x := range hs {
		if err := checkHeader(x); err != nil {
			return nil, err
		}
		h[x.Name] = append(h[x.Name], string(x.Value))
	}
	h[jetstream.MsgIDHeader] = []string{d.Record.ID.String()}
	if t.opts.Stream != "" {
		h[jetstream.ExpectedStreamHeader] = []string{t.opts.Stream}
	}
	return &nats.Msg{Subject: m.Destination, Header: h, Data: m.Body}, nil
}

// checkSubject refuses what cannot be published to: the server would drop it
// without an answer, take it for a command, or end the connection, and with it
// every message in flight, over a line that is too long for it.
func checkSubject(s string) error {
	if len(s) > outbox.MaxAddress {
		return fmt.Errorf("destination %.80q... has %d bytes, limit %d: use a shorter subject", s, len(s), outbox.MaxAddress)
	}
	fail := func(why string) error {
		return fmt.Errorf("destination %q is no NATS subject: %s", s, why)
	}
	if strings.HasPrefix(s, "$JS.") || strings.HasPrefix(s, "$SYS.") {
		return fail("it belongs to the server itself: use a subject of your own")
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return fail("it has a space or control byte: remove it")
		}
	}
	for token := range strings.SplitSeq(s, ".") {
		switch token {
		case "":
			return fail("it has an empty token: give every part between the dots a name")
		case "*", ">":
			return fail("it has a wildcard: name one subject")
		}
	}
	return nil
}

// checkHeader refuses what nats.go would alter (it trims values and replaces
// line breaks) or cannot write, and headers that change what is acknowledged.
func checkHeader(h outbox.Header) error {
	for i := range len(h.Name) {
		if c := h.Name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"()/,:;<=>?@[\\]{}", c) >= 0 {
			return fmt.Errorf("header name %q has a byte that NATS cannot carry at %d: use letters, digits and -_. only", h.Name, i)
		}
	}
	if len(h.Name) >= len("Nats-Batch-") && strings.EqualFold(h.Name[:len("Nats-Batch-")], "Nats-Batch-") {
		return fmt.Errorf("header %q makes the message part of a batch, which is acknowledged as one: remove it", h.Name)
	}
	if strings.EqualFold(h.Name, "Nats-Trace-Only") {
		return fmt.Errorf("header %q makes the server trace the message instead of storing it, and no acknowledgement comes: remove it", h.Name)
	}
	if i := bytes.IndexAny(h.Value, "\r\n\x00"); i >= 0 {
		return fmt.Errorf("header %q has a line break or NUL in its value at %d, which NATS cannot carry: encode the value", h.Name, i)
	}
	if n := len(h.Value); n > 0 && (isSpace(h.Value[0]) || isSpace(h.Value[n-1])) {
		return fmt.Errorf("header %q has a value that begins or ends with a space or tab, which NATS does not keep: encode the value", h.Name)
	}
	return nil
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

func (t *Transport) down() error {
	if err := t.nc.LastError(); err != nil {
		return fmt.Errorf("not connected to NATS (%s): %w", t.nc.Status(), err)
	}
	return fmt.Errorf("not connected to NATS (%s)", t.nc.Status())
}

// classifyPublish judges an error of the publish call itself.
func (t *Transport) classifyPublish(msg *nats.Msg, err error) (transport.Outcome, error) {
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return transport.Permanent, fmt.Errorf("body of %d bytes with its headers is over the NATS server's max_payload of %d: send a reference to the data or raise max_payload: %w", len(msg.Data), t.nc.MaxPayload(), err)
	case errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return transport.Permanent, fmt.Errorf("publish to %q: %w", msg.Subject, err)
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionDraining),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrInvalidConnection),
		errors.Is(err, nats.ErrHeadersNotSupported), errors.Is(err, jetstream.ErrTooManyStalledMsgs):
		// All of them are found before a byte is written.
		return transport.Unreachable, fmt.Errorf("publish to %q: %w", msg.Subject, err)
	}
	return transport.Unknown, fmt.Errorf("publish to %q: %w", msg.Subject, err)
}

// Error codes of JetStream that its Go package has no name for.
const (
	codeAccountResources jetstream.ErrorCode = 10002
	codeNotAvailable     jetstream.ErrorCode = 10008
	codeNotLeader        jetstream.ErrorCode = 10009
	codeResources        jetstream.ErrorCode = 10023
	codeMemory           jetstream.ErrorCode = 10028
	codeNoAccount        jetstream.ErrorCode = 10035
	codeStorage          jetstream.ErrorCode = 10047
	codeStreamNotMatch   jetstream.ErrorCode = 10060
	codeStoreFailed      jetstream.ErrorCode = 10077
	codeSealed           jetstream.ErrorCode = 10109
	codeOffline          jetstream.ErrorCode = 10118
	codeRollupFailed     jetstream.ErrorCode = 10111
	codeIDInProcess      jetstream.ErrorCode = 10158
	codeOfflineReason    jetstream.ErrorCode = 10194
)

// classifyAck judges what came back instead of an acknowledgement.
func (t *Transport) classifyAck(msg *nats.Msg, err error) (transport.Outcome, error) {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api):
		return classifyAPI(api), fmt.Errorf("stream of subject %q: %w", msg.Subject, err)
	case errors.Is(err, jetstream.ErrAsyncPublishTimeout):
		err = fmt.Errorf("no acknowledgement from NATS for subject %q within %s: %w", msg.Subject, t.opts.AckWait, err)
		// A publish that the account may not make is dropped without an answer.
		if last := t.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
			err = fmt.Errorf("%w (last error of the connection: %v)", err, last)
		}
		return transport.Unknown, err
	case errors.Is(err, nats.ErrDisconnected):
		return transport.Unknown, fmt.Errorf("connection lost before the acknowledgement for subject %q: %w", msg.Subject, err)
	}
	return transport.Unknown, fmt.Errorf("answer for subject %q is no acknowledgement of a stream: %w", msg.Subject, err)
}

func classifyAPI(e *jetstream.APIError) transport.Outcome {
	switch e.ErrorCode {
	case codeStreamNotMatch, codeSealed, jetstream.JSErrCodeStreamNotFound:
		return transport.Unroutable
	case codeNotAvailable, codeNotLeader, codeNoAccount, codeOffline, codeOfflineReason,
		jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount:
		return transport.Unreachable
	case codeAccountResources, codeResources, codeMemory, codeStorage:
		// The server or the account is full, whichever message comes: were it
		// to spend attempts, a full disk of a minute would end the whole
		// backlog as dead letters.
		return transport.Unreachable
	case codeStoreFailed:
		// A stream that discards new messages holds its producers back: were
		// that to spend attempts, a consumer that stops for minutes would end the
		// backlog as dead letters. A subject that is full concerns its messages
		// alone.
		if e.Description == "maximum messages exceeded" || e.Description == "maximum bytes exceeded" {
			return transport.Unreachable
		}
	case codeIDInProcess:
		// The same id is being stored now; whether it will be is not known.
		return transport.Unknown
	case codeRollupFailed:
		return transport.Permanent
	}
	if e.Code == 400 {
		return transport.Permanent // too large, a header the stream does not allow
	}
	return transport.Refused // a full subject, overloaded
}

// resolve tells a subject without a stream from a stream without a leader: the
// one waits for an operator, the other passes. found keeps the answers of one
// Send: nil for a stream that exists.
func (t *Transport) resolve(ctx context.Context, subject string, found map[string]error) (transport.Outcome, error) {
	err, known := found[subject]
	if !known {
		if e, failed := found[""]; failed {
			err = e
		} else {
			ctx, cancel := context.WithTimeout(ctx, lookup)
			defer cancel()
			if _, err = t.js.StreamNameBySubject(ctx, subject); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				found[""] = err // no second question to a server that does not answer
			}
			found[subject] = err
		}
	}
	switch {
	case err == nil:
		return transport.Unreachable, fmt.Errorf("the stream of subject %q does not answer: it may have no leader now: %w", subject, jetstream.ErrNoStreamResponse)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return transport.Unroutable, fmt.Errorf("no stream takes subject %q: create one, or add the subject to a stream: %w", subject, jetstream.ErrNoStreamResponse)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return transport.Unreachable, fmt.Errorf("NATS server without JetStream: turn it on: %w", err)
	case !t.nc.IsConnected():
		return transport.Unreachable, t.down()
	}
	// Whether there is a stream nobody has said: parked, its key would wait for an
	// operator after JetStream has a leader again.
	return transport.Unreachable, fmt.Errorf("no stream answers for subject %q, and the server does not say whether one takes it: JetStream may have no leader now, or this user may not publish on $JS.API.STREAM.NAMES: %w", subject, err)
}
