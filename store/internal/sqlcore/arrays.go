package sqlcore

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/outbox"
)

// What of scripts is for an engine that runs a statement for many rows when it is
// given arrays, and holds short strings only.

const (
	// heldBytes and heldText are the most bytes of a value that is not a large
	// object, in a database with standard strings.
	heldBytes = 2000
	heldText  = 4000
)

// exec runs a step that writes: one statement, or a statement for each row of the
// table parameter.
func (s stepper) exec(ctx context.Context, st *step, args []any) (changed int64, err error) {
	if !st.arrays {
		text, list := st.build(s.mark, args)
		return s.Querier.Exec(ctx, text, list...)
	}
	rows := args[0].(*tableRows)
	for from := 0; from < rows.len(); {
		upto := from + 1
		for !rows.large(from) && upto < rows.len() && !rows.large(upto) {
			upto++
		}
		b := builder{args: args, rows: rows, mark: s.mark}
		for i, r := range st.head.args {
			b.WriteString(st.head.parts[i])
			if upto == from+1 {
				b.arg(r, from)
			} else {
				b.put(b.array(r, from, upto))
			}
		}
		b.WriteString(st.head.parts[len(st.head.args)])
		n, err := s.Querier.Exec(ctx, b.String(), b.list...)
		if err != nil {
			return 0, err
		}
		changed += n
		from = upto
	}
	return changed, nil
}

// large tells that a value of the row is too large to be one of an array: the
// driver describes all of them alike.
func (t *tableRows) large(row int) bool {
	for column := range t.columns {
		if c := t.at(row, column+1); len(c.b) > heldBytes || len(c.s) > heldText {
			return true
		}
	}
	return false
}

// array is an argument in so many rows, as a slice of one type.
func (b *builder) array(r ref, from, upto int) any {
	n := upto - from
	ints, texts, bytes := make([]int64, n), make([]string, n), [][]byte(nil)
	found, nulls := false, false
	null := make([]bool, n)
	for i := range n {
		switch v := as(r.as, b.value(r, from+i)).(type) {
		case int64:
			ints[i], found = v, true
		case string:
			texts[i] = v // no text is NULL
		case []byte:
			if bytes == nil {
				bytes = make([][]byte, n)
			}
			bytes[i] = v
		case nil:
			null[i], nulls = true, true
		}
	}
	switch {
	case bytes != nil:
		return bytes
	case !found:
		return texts
	case !nulls:
		return ints
	}
	list := make([]sql.NullInt64, n)
	for i := range list {
		list[i] = sql.NullInt64{Int64: ints[i], Valid: !null[i]}
	}
	return list
}

// as is an argument in another form.
func as(form byte, v any) any {
	switch form {
	case '$':
		switch v := v.(type) {
		case nil:
			return []byte(nil)
		case string:
			return []byte(v)
		}
	case '!':
		b, ok := v.([]byte)
		return bit(ok && b != nil && len(b) == 0)
	case '^':
		if text, ok := v.(string); ok && len(text) > heldText {
			n := heldText
			for !utf8.RuneStart(text[n]) {
				n--
			}
			return text[:n]
		}
	}
	return v
}

// part is a piece of a statement; one that repeats stands once for each part of the
// JSON of the table parameters that it names.
type part struct {
	piece
	repeats bool
	between string
}

func parseParts(text string) (list []part) {
	for {
		head, rest, found := strings.Cut(text, "[<")
		list = append(list, part{piece: parsePiece(head)})
		if !found {
			return list
		}
		body, tail, _ := strings.Cut(rest, ">]")
		between, body, _ := strings.Cut(body, "|")
		list = append(list, part{piece: parsePiece(body), repeats: true, between: between})
		text = tail
	}
}

func buildParts(parts []part, mark string, args []any) (text string, list []any) {
	b := builder{args: args, mark: mark}
	if len(args) > 0 {
		b.rows, _ = args[0].(*tableRows)
	}
	for i := range parts {
		p := &parts[i]
		if !p.repeats {
			b.add(&p.piece, 0, 1)
			continue
		}
		// One table parameter is named, once.
		cut := []string{"[]"}
		if rows, ok := args[p.args[0].n-1].(*tableRows); ok {
			cut = rows.cut()
		}
		for j, json := range cut {
			if j > 0 {
				b.WriteString(p.between)
			}
			b.WriteString(p.parts[0])
			b.put(json)
			b.WriteString(p.parts[1])
		}
	}
	return b.String(), b.list
}

// cut is the list in JSON, each row with its number from 1 before it, in parts of
// at most heldText bytes. There are 1, 2, 4, 8 and so on, so that there are few
// texts of a statement, and the last may be empty.
func (t *tableRows) cut() (parts []string) {
	var part, row []byte
	part = append(part, '[')
	for i := range t.len() {
		row = append(row[:0], '[')
		row = strconv.AppendInt(row, int64(i+1), 10)
		for column := range t.columns {
			row = append(row, ',')
			row = t.at(i, column+1).appendJSON(row)
		}
		row = append(row, ']')
		if len(part) > 1 && len(part)+len(row)+2 > heldText {
			parts = append(parts, string(append(part, ']')))
			part = append(part[:0], '[')
		}
		if len(part) > 1 {
			part = append(part, ',')
		}
		part = append(part, row...)
	}
	parts = append(parts, string(append(part, ']')))
	for len(parts)&(len(parts)-1) != 0 {
		parts = append(parts, "[]")
	}
	return parts
}

func (c *cell) appendJSON(b []byte) []byte {
	one := jsonRows{columns: 1}
	switch c.kind {
	case cellInt:
		return strconv.AppendInt(b, c.n, 10)
	case cellText:
		one.Text(c.s)
	case cellBytes:
		one.Bytes(c.b)
	case cellID:
		one.ID(c.id)
	default:
		return append(b, "null"...)
	}
	text := one.Args()[0].(string) // [["…"]]
	return append(b, text[2:len(text)-2]...)
}

// emptyBody is added to the envelope of a row that is read, where the engine takes
// no bytes for NULL: its message has a body, of no bytes.
const emptyBody = 1 << 16

// bodyOf tells the body and the envelope of such a row apart.
func bodyOf(body []byte, envelope int64) ([]byte, int64) {
	if envelope < emptyBody {
		return body, envelope
	}
	if body == nil {
		body = []byte{}
	}
	return body, envelope - emptyBody
}

var _ RowWriter = (*tableRows)(nil)

// byteRows is a table parameter whose names go over as bytes.
func byteRows(columns int) RowWriter { return &tableRows{columns: columns, bytes: true} }

func bytesOf(id outbox.ID) any { return id[:] }
