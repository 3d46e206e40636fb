package sqlcore

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/outbox"
)

// The texts of an engine whose statements cannot do what others can say more
// than its drivers understand:
//
//	?1 ?2        arguments by their number, so that one may stand twice
//	{a} ;; {b}   statements that run one after another, in one transaction
//	> SELECT     of several the one whose rows are the answer, or are counted; if
//	             there are none, the script ends
//	if SELECT    of several one that ends the script unless it finds a row
//	[[, |(#1)]]  what stands once for each row of the table parameter, parted by
//	             ", "; #1 is the first column of the row, #0 its number from 1
//	#2..         in there, the columns of this row and of those after it with the
//	             same number in their first column, as a list: it stands once for
//	             all of them
//	#2           outside of brackets: the statement runs once for each row, with
//	             columns as arrays in one round trip (arrays.go)
//	[< UNION |>] what stands once for each of the parts into which the JSON of the
//	             table parameters in it is cut (arrays.go)
//	?1$ ?1! ?1^  a string or NULL as bytes; 1 for bytes that are none, but not
//	             NULL; a string cut to what the engine holds. #1$ and so on as well
//
// A table parameter outside of such brackets is a JSON list of lists, with bytes
// in hexadecimal.

// script is such a text, taken apart.
type script []step

type step struct {
	answers, asks    bool
	arrays           bool // columns of rows outside of brackets
	head, body, tail piece
	between          string
	parts            []part // in the place of head, body and tail
}

// piece is text between arguments: one part more than there are of them.
type piece struct {
	parts   []string
	args    []ref
	grouped bool // some are lists
}

// ref is an argument: of the statement, counted from 1, or a column of the row,
// or of all rows of a group.
type ref struct {
	column, list bool
	n            int
	as           byte // one of $!^, or 0
}

func parseScript(text string) script {
	var s script
	for _, part := range strings.Split(text, ";;") {
		part = strings.TrimSpace(part)
		var st step
		if rest, ok := strings.CutPrefix(part, "> "); ok {
			st.answers, part = true, rest
		} else if rest, ok := strings.CutPrefix(part, "if "); ok {
			st.asks, part = true, rest
		}
		if strings.Contains(part, "[<") {
			st.parts = parseParts(part)
			s = append(s, st)
			continue
		}
		head, rest, repeats := strings.Cut(part, "[[")
		st.head = parsePiece(head)
		if repeats {
			body, tail, _ := strings.Cut(rest, "]]")
			between, body, _ := strings.Cut(body, "|")
			st.between, st.body, st.tail = between, parsePiece(body), parsePiece(tail)
		} else {
			st.arrays = slices.ContainsFunc(st.head.args, func(r ref) bool { return r.column })
		}
		s = append(s, st)
	}
	if len(s) == 1 {
		s[0].answers = true
	}
	return s
}

// scripts are the scripts of all texts, and of some more.
func (t *texts) scripts(more ...string) map[string]script {
	all := map[string]script{}
	add := func(text string) {
		if text != "" {
			all[text] = parseScript(text)
		}
	}
	for _, text := range more {
		add(text)
	}
	v := reflect.ValueOf(t).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i).Addr().Interface().(type) {
		case *string:
			add(*f)
		case *limited:
			for _, text := range f {
				add(text)
			}
		}
	}
	return all
}

func parsePiece(text string) (p piece) {
	from := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '?' && c != '#' {
			continue
		}
		p.parts = append(p.parts, text[from:i])
		r := ref{column: c == '#'}
		for i+1 < len(text) && '0' <= text[i+1] && text[i+1] <= '9' {
			i++
			r.n = 10*r.n + int(text[i]-'0')
		}
		if r.column && strings.HasPrefix(text[i+1:], "..") {
			i += 2
			r.list, p.grouped = true, true
		}
		if i+1 < len(text) && strings.IndexByte("$!^", text[i+1]) >= 0 {
			i++
			r.as = text[i]
		}
		p.args = append(p.args, r)
		from = i + 1
	}
	p.parts = append(p.parts, text[from:])
	return p
}

// build is the statement as drivers take it: with a question mark for each of its
// arguments, or a mark and the argument's number, from 1.
func (st *step) build(mark string, args []any) (text string, list []any) {
	if st.parts != nil {
		return buildParts(st.parts, mark, args)
	}
	b := builder{args: args, mark: mark}
	if len(args) > 0 {
		b.rows, _ = args[0].(*tableRows)
	}
	b.add(&st.head, 0, 1)
	if st.body.parts != nil {
		b.Grow(b.rows.len() * 2 * len(st.body.args))
		for from := 0; from < b.rows.len(); {
			if from > 0 {
				b.WriteString(st.between)
			}
			upto := from + 1
			for st.body.grouped && upto < b.rows.len() && b.rows.at(upto, 1).n == b.rows.at(from, 1).n {
				upto++
			}
			b.add(&st.body, from, upto)
			from = upto
		}
		b.add(&st.tail, 0, 1)
	}
	return b.String(), b.list
}

// builder is a statement that is being built.
type builder struct {
	strings.Builder
	args []any
	mark string
	rows *tableRows // the first of args, if it is one
	list []any
}

// add writes a piece of the rows from and up to others.
func (b *builder) add(p *piece, from, upto int) {
	for i, r := range p.args {
		b.WriteString(p.parts[i])
		b.arg(r, from)
		for row := from + 1; r.list && row < upto; row++ {
			b.WriteString(", ")
			b.arg(r, row)
		}
	}
	b.WriteString(p.parts[len(p.args)])
}

func (b *builder) arg(r ref, row int) {
	b.put(as(r.as, b.value(r, row)))
}

// put writes the mark of the next argument, which is v.
func (b *builder) put(v any) {
	if b.mark == "" {
		b.WriteByte('?')
	} else {
		var digits [8]byte
		b.WriteString(b.mark)
		b.Write(strconv.AppendInt(digits[:0], int64(len(b.list)+1), 10))
	}
	b.list = append(b.list, v)
}

func (b *builder) value(r ref, row int) any {
	switch {
	case r.column && r.n == 0:
		return int64(row + 1)
	case r.column:
		return b.rows.at(row, r.n).arg()
	case r.n == 1 && b.rows != nil:
		return b.rows.json()
	}
	return b.args[r.n-1]
}

// stepper runs scripts over a querier.
type stepper struct {
	Querier
	scripts map[string]script
	mark    string
}

// Exec tells how many rows the script has changed, or its answer has.
func (s stepper) Exec(ctx context.Context, text string, args ...any) (changed int64, err error) {
	sc, ok := s.scripts[text]
	if !ok {
		return s.Querier.Exec(ctx, text, args...)
	}
	if len(sc) == 1 {
		return s.exec(ctx, &sc[0], args)
	}
	answer, answered := int64(0), false
	n, err := s.run(ctx, sc, args, func(Row) error { answer++; return nil })
	for i := range sc {
		answered = answered || sc[i].answers
	}
	if answered {
		n = answer
	}
	return n, err
}

// Query calls scan for each row of the answer.
func (s stepper) Query(ctx context.Context, text string, args []any, scan func(Row) error) error {
	sc, ok := s.scripts[text]
	if !ok {
		return s.Querier.Query(ctx, text, args, scan)
	}
	_, err := s.run(ctx, sc, args, scan)
	return err
}

// run runs the statements of a script, and tells how many rows those that write
// have changed.
func (s stepper) run(ctx context.Context, sc script, args []any, scan func(Row) error) (changed int64, err error) {
	for i := range sc {
		n := int64(0)
		switch {
		case sc[i].answers:
			text, list := sc[i].build(s.mark, args)
			err = s.Querier.Query(ctx, text, list, func(r Row) error { n++; return scan(r) })
		case sc[i].asks:
			text, list := sc[i].build(s.mark, args)
			err = s.Querier.Query(ctx, text, list, func(Row) error { n++; return nil })
		default:
			n, err = s.exec(ctx, &sc[i], args)
			changed += n
		}
		if err != nil {
			return 0, err
		}
		if n == 0 && (sc[i].answers || sc[i].asks) {
			break
		}
	}
	return changed, nil
}

// tableRows keeps the rows of a table parameter until it is known in which form
// a statement wants them.
type tableRows struct {
	columns int
	list    []cell
	bytes   bool // names go over as bytes
}

// cell is a value of a row: a number, or text or bytes, which are borrowed.
type cell struct {
	kind cellKind
	n    int64
	s    string
	b    []byte
	id   outbox.ID
}

type cellKind uint8

const (
	cellNull cellKind = iota
	cellInt
	cellText
	cellBytes
	cellID
)

func (t *tableRows) Grow(rows int) {
	if t.list == nil {
		t.list = make([]cell, 0, rows*t.columns)
	}
}

func (t *tableRows) Int(v int64)     { t.list = append(t.list, cell{kind: cellInt, n: v}) }
func (t *tableRows) Text(s string)   { t.list = append(t.list, cell{kind: cellText, s: s}) }
func (t *tableRows) ID(id outbox.ID) { t.list = append(t.list, cell{kind: cellID, id: id}) }
func (t *tableRows) Null()           { t.list = append(t.list, cell{}) }

func (t *tableRows) Name(s string) {
	if t.bytes {
		t.Bytes([]byte(s))
		return
	}
	t.Text(s)
}

// Hint is for engines that give some.
func (t *tableRows) Hint(uint64) { t.Null() }

func (t *tableRows) Bytes(b []byte) {
	if b == nil {
		t.Null()
		return
	}
	t.list = append(t.list, cell{kind: cellBytes, b: b})
}

func (t *tableRows) Args() []any { return []any{t} }

func (t *tableRows) len() int { return len(t.list) / t.columns }

// at is a value by its row and, counted from 1, its column.
func (t *tableRows) at(row, column int) *cell { return &t.list[row*t.columns+column-1] }

func (c *cell) arg() any {
	switch c.kind {
	case cellInt:
		return c.n
	case cellText:
		return c.s
	case cellBytes:
		return c.b
	case cellID:
		return c.id[:]
	}
	return nil
}

func (t *tableRows) json() string {
	w := jsonRows{columns: t.columns}
	w.Grow(t.len())
	for i := range t.list {
		switch c := &t.list[i]; c.kind {
		case cellInt:
			w.Int(c.n)
		case cellText:
			w.Text(c.s)
		case cellBytes:
			w.Bytes(c.b)
		case cellID:
			w.ID(c.id)
		default:
			w.Null()
		}
	}
	return w.Args()[0].(string)
}
