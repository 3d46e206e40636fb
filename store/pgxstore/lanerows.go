package pgxstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/internal/sqlcore"
)

// QueryLanes implements sqlcore.LaneQuerier.
func (c *conn) QueryLanes(ctx context.Context, text string, args []any, dst []outbox.LaneRow, notes []sqlcore.LaneNote) (n int, err error) {
	rows, err := c.statements.Query(ctx, text, c.with(args)...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	if c.lanes == nil {
		c.lanes = &laneDecoder{}
	}
	c.lanes.arena.begin()
	for rows.Next() {
		if n == len(dst) {
			return 0, fmt.Errorf("more than %d rows came back", n)
		}
		if notes[n], err = c.lanes.decode(rows.FieldDescriptions(), rows.RawValues(), &dst[n]); err != nil {
			return 0, err
		}
		n++
	}
	return n, rows.Err()
}

// laneDecoder makes records of rows as they come from the server. The records
// of a read share a few blocks of memory; texts that come again and again are
// kept. Not for concurrent use.
type laneDecoder struct {
	arena arena
	words words
}

// decode reads a row of ReadRanges or ReadKeys: the number of its read, the
// columns of a message and its state, whether it is claimed, KeyPrev, Hint, and
// the size of a body that is withheld.
func (d *laneDecoder) decode(fields []pgconn.FieldDescription, values [][]byte, dst *outbox.LaneRow) (note sqlcore.LaneNote, err error) {
	r := rowReader{d: d, fields: fields, values: values}
	note.Read = int(r.int())
	*dst = outbox.LaneRow{Pos: r.int(), Lane: outbox.Lane(r.int())}
	rec, m := &dst.Record, &dst.Record.Message
	var s sqlcore.Stored
	rec.ID = r.id()
	s.Keyed = !r.isNull()
	s.KeyHash = r.int()
	dst.KeyHash = s.KeyHash
	m.Key = r.bytes()
	rec.Transport, rec.Type, m.Destination, m.ContentType = r.word(), r.word(), r.word(), r.word()
	s.Headers = r.bytes()
	m.Body = r.bytes()
	m.DeliverAt, rec.CreatedAt = r.time(), r.time()
	rec.TenantID = r.word()
	s.Envelope = r.int()
	m.Envelope = outbox.Envelope(s.Envelope)
	m.Event.Source, m.Event.Subject, m.Event.Time, m.Event.DataSchema = r.word(), r.text(), r.time(), r.word()
	s.Extensions = r.bytes()
	m.Context.CorrelationID, m.Context.CausationID = r.text(), r.text()
	m.Context.TraceParent, m.Context.TraceState = r.text(), r.text()
	s.Attempts = r.int()
	rec.Attempts = int(s.Attempts)
	rec.LastError = r.text()
	dst.RetryAt = r.time()
	dst.Claimed = r.int() != 0
	dst.KeyPrev = r.int()
	dst.Hint = r.hint()
	note.Withheld = int(r.int())
	if r.err != nil {
		return note, r.err
	}
	if m.Key != nil {
		rec.Lane = dst.Lane
	}
	dst.Err = s.Decode(rec)
	return note, nil
}

// rowReader reads the columns of a row, one after another. NULL is the zero
// value. Numbers, ids and bytes are binary, or text where the connection's mode
// has no binary results.
type rowReader struct {
	d      *laneDecoder
	fields []pgconn.FieldDescription
	values [][]byte
	at     int
	err    error
}

func (r *rowReader) next() (v []byte, text bool) {
	if r.at == len(r.values) {
		r.fail(errors.New("there is no such column"))
		return nil, false
	}
	v, text = r.values[r.at], r.fields[r.at].Format == pgx.TextFormatCode
	r.at++
	return v, text
}

func (r *rowReader) fail(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("column %d of a lane row: %w", r.at, err)
	}
}

func (r *rowReader) isNull() bool { return r.at < len(r.values) && r.values[r.at] == nil }

func (r *rowReader) int() int64 {
	v, text := r.next()
	if v == nil {
		return 0
	}
	n, err := parseInt(v, text)
	if err != nil {
		r.fail(err)
	}
	return n
}

func (r *rowReader) hint() uint64 {
	v, text := r.next()
	switch {
	case text:
		return sqlcore.ParseHint(string(v))
	case len(v) == 6:
		return uint64(binary.BigEndian.Uint32(v))<<16 | uint64(binary.BigEndian.Uint16(v[4:]))
	}
	return 0
}

func (r *rowReader) time() time.Time {
	if r.isNull() {
		r.at++
		return time.Time{}
	}
	return time.UnixMicro(r.int()).UTC()
}

func (r *rowReader) id() outbox.ID {
	v, _ := r.next()
	id, err := parseID(v)
	if err != nil {
		r.fail(err)
	}
	return id
}

func (r *rowReader) bytes() []byte {
	v, text := r.next()
	if v == nil {
		return nil
	}
	b, err := parseBytes(v, text, r.d.arena.bytes)
	if err != nil {
		r.fail(err)
	}
	return b
}

// text copies.
func (r *rowReader) text() string {
	v, _ := r.next()
	if len(v) == 0 {
		return ""
	}
	return r.d.arena.text(v)
}

// word is text that many rows have in common.
func (r *rowReader) word() string {
	column := r.at
	v, _ := r.next()
	if len(v) == 0 {
		return ""
	}
	return r.d.words.get(column, v)
}

const (
	minBlock = 4 << 10
	maxBlock = 32 << 10
)

// arena is memory for the rows of one read, in blocks as large as the read
// before needed: a record that is kept keeps its block, 32 KiB at most. What
// is larger than a quarter of a block has memory of its own.
type arena struct {
	block []byte
	texts strings.Builder
	used  struct{ bytes, texts int } // by this read
	last  struct{ bytes, texts int } // by the one before
}

func (a *arena) begin() {
	a.last, a.used = a.used, struct{ bytes, texts int }{}
	a.block, a.texts = nil, strings.Builder{}
}

func blockFor(expected int) int { return min(max(expected, minBlock), maxBlock) }

// bytes returns room for n bytes, to append to.
func (a *arena) bytes(n int) []byte {
	a.used.bytes += n
	if n > len(a.block) {
		size := blockFor(a.last.bytes)
		if n > size/4 {
			return make([]byte, 0, n)
		}
		a.block = make([]byte, size)
	}
	b := a.block[:0:n]
	a.block = a.block[n:]
	return b
}

func (a *arena) text(v []byte) string {
	a.used.texts += len(v)
	if a.texts.Cap()-a.texts.Len() < len(v) {
		size := blockFor(a.last.texts)
		if len(v) > size/4 {
			return string(v)
		}
		a.texts = strings.Builder{}
		a.texts.Grow(size)
	}
	start := a.texts.Len()
	a.texts.Write(v)
	return a.texts.String()[start:]
}

// words keeps texts: the last one of each column, and some more by their hash,
// so that it never grows.
type words struct {
	last   [32]string
	hashed [256]string
}

// maxWord is the longest text that is kept.
const maxWord = 255

var wordSeed = maphash.MakeSeed()

func (w *words) get(column int, v []byte) string {
	last := &w.last[column]
	if string(v) == *last {
		return *last
	}
	if len(v) > maxWord {
		return string(v)
	}
	s := &w.hashed[maphash.Bytes(wordSeed, v)%uint64(len(w.hashed))]
	if string(v) != *s {
		*s = string(v)
	}
	*last = *s
	return *s
}
