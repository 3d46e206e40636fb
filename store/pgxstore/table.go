package pgxstore

import (
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/internal/sqlcore"
)

// table is a table parameter, an array per column. Columns that hold nothing
// but NULL are sent empty: unnest fills the shorter arrays up.
type table struct {
	cols []column
	at   int
}

func newTable(columns int) sqlcore.RowWriter { return &table{cols: make([]column, columns)} }

func (t *table) Grow(rows int) {
	for i := range t.cols {
		t.cols[i].rows = rows
	}
}

func (t *table) next() *column {
	c := &t.cols[t.at]
	t.at = (t.at + 1) % len(t.cols)
	return c
}

func (t *table) Null() {
	c := t.next()
	c.n++
	switch c.kind {
	case ints:
		c.ints = append(c.ints, 0)
	case texts:
		c.texts = append(c.texts, "")
	case blobs:
		c.blobs = append(c.blobs, nil)
	case ids:
		c.ids = append(c.ids, outbox.ID{})
	case hints:
		c.ints = append(c.ints, 0)
	}
	if c.kind != nothing {
		c.null(c.n - 1)
	}
}

func (t *table) Int(v int64) {
	c := t.next()
	if c.kind == nothing {
		c.ints = begin[int64](c, ints)
	}
	c.ints = append(c.ints, v)
	c.n++
}

func (t *table) Hint(h uint64) {
	c := t.next()
	if c.kind == nothing {
		c.ints = begin[int64](c, hints)
	}
	c.ints = append(c.ints, int64(h))
	c.n++
}

func (t *table) Text(v string) {
	c := t.next()
	if c.kind == nothing {
		c.texts = begin[string](c, texts)
	}
	c.texts = append(c.texts, v)
	c.n++
}

func (t *table) Name(v string) { t.Text(v) }

func (t *table) Bytes(v []byte) {
	if v == nil {
		t.Null()
		return
	}
	c := t.next()
	if c.kind == nothing {
		c.blobs = begin[[]byte](c, blobs)
	}
	c.blobs = append(c.blobs, v)
	c.n++
}

func (t *table) ID(v outbox.ID) {
	c := t.next()
	if c.kind == nothing {
		c.ids = begin[outbox.ID](c, ids)
	}
	c.ids = append(c.ids, v)
	c.n++
}

func (t *table) Args() []any {
	args := make([]any, len(t.cols))
	for i := range t.cols {
		args[i] = &t.cols[i]
	}
	return args
}

// kind is what a column holds.
type kind uint8

const (
	nothing kind = iota // NULL only
	ints
	texts
	blobs
	ids
	hints // in ints
)

// column is an array parameter. pgx encodes it in binary where it has the
// parameter's type from the server, and asks for a literal where it has not.
type column struct {
	kind  kind
	n     int // values so far
	rows  int // values to make room for
	ints  []int64
	texts []string
	blobs [][]byte
	ids   []outbox.ID
	nulls []bool // nil: none is NULL

	at  int // the element that pgx is at
	dim [1]pgtype.ArrayDimension
}

// begin makes the column's first value possible: those before it are NULL.
func begin[T any](c *column, k kind) []T {
	c.kind = k
	for i := range c.n {
		c.null(i)
	}
	return make([]T, c.n, max(c.n+1, c.rows))
}

func (c *column) null(i int) {
	if c.nulls == nil {
		c.nulls = make([]bool, 0, max(i+1, c.rows))
	}
	c.nulls = slices.Grow(c.nulls, i+1-len(c.nulls))[:i+1]
	c.nulls[i] = true
}

func (c *column) isNull(i int) bool { return i < len(c.nulls) && c.nulls[i] }

// Dimensions implements pgtype.ArrayGetter.
func (c *column) Dimensions() []pgtype.ArrayDimension {
	c.dim[0] = pgtype.ArrayDimension{LowerBound: 1}
	if c.kind != nothing {
		c.dim[0].Length = int32(c.n)
	}
	return c.dim[:]
}

// Index implements pgtype.ArrayGetter. Each call ends the use of the element
// before.
func (c *column) Index(i int) any {
	c.at = i
	return (*element)(c)
}

// IndexType implements pgtype.ArrayGetter.
func (c *column) IndexType() any { return (*element)(c) }

// TextValue implements pgtype.TextValuer.
func (c *column) TextValue() (pgtype.Text, error) {
	s := sqlcore.ArrayLiteral(func(w sqlcore.RowWriter) {
		for i := range c.n {
			switch {
			case c.kind == nothing:
				return
			case c.isNull(i):
				w.Null()
			case c.kind == ints:
				w.Int(c.ints[i])
			case c.kind == texts:
				w.Text(c.texts[i])
			case c.kind == blobs:
				w.Bytes(c.blobs[i])
			case c.kind == hints:
				w.Hint(uint64(c.ints[i]))
			default:
				w.ID(c.ids[i])
			}
		}
	})
	return pgtype.Text{String: s, Valid: true}, nil
}

// element is the value that its column is at: a pointer, which costs no memory
// as an interface.
type element column

func (e *element) valid() bool { return !(*column)(e).isNull(e.at) }

// Int64Value implements pgtype.Int64Valuer.
func (e *element) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: e.ints[e.at], Valid: e.valid()}, nil
}

// TextValue implements pgtype.TextValuer.
func (e *element) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: e.texts[e.at], Valid: e.valid()}, nil
}

// BytesValue implements pgtype.BytesValuer; nil is NULL.
func (e *element) BytesValue() ([]byte, error) { return e.blobs[e.at], nil }

// TIDValue implements pgtype.TIDValuer.
func (e *element) TIDValue() (pgtype.TID, error) {
	h := uint64(e.ints[e.at])
	return pgtype.TID{BlockNumber: uint32(h >> 16), OffsetNumber: uint16(h), Valid: e.valid()}, nil
}

// UUIDValue implements pgtype.UUIDValuer.
func (e *element) UUIDValue() (pgtype.UUID, error) {
	return pgtype.UUID{Bytes: e.ids[e.at], Valid: e.valid()}, nil
}
