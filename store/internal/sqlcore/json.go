package sqlcore

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/postrider/postrider/outbox"
)

// jsonRows writes a table parameter as a JSON list of lists; bytes in it are
// hexadecimal.
type jsonRows struct {
	columns int
	at      int
	buf     []byte
}

func (j *jsonRows) Grow(rows int) { j.buf = slices.Grow(j.buf, 8*j.columns*rows) }

func (j *jsonRows) next() {
	switch {
	case len(j.buf) == 0:
		j.buf = append(j.buf, "[["...)
	case j.at == 0:
		j.buf = append(j.buf, "],["...)
	default:
		j.buf = append(j.buf, ',')
	}
	j.at = (j.at + 1) % j.columns
}

func (j *jsonRows) Int(v int64) {
	j.next()
	j.buf = strconv.AppendInt(j.buf, v, 10)
}

// Hint is for engines that give some.
func (j *jsonRows) Hint(uint64) { j.Null() }

func (j *jsonRows) Null() {
	j.next()
	j.buf = append(j.buf, "null"...)
}

func (j *jsonRows) Text(s string) {
	j.next()
	j.buf = appendJSON(j.buf, s)
}

// appendJSON adds s in quotes.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func (j *jsonRows) Name(s string) { j.Text(s) }

func (j *jsonRows) Bytes(v []byte) {
	if v == nil {
		j.Null()
		return
	}
	j.next()
	j.buf = append(hex.AppendEncode(append(j.buf, '"'), v), '"')
}

func (j *jsonRows) ID(id outbox.ID) { j.Bytes(id[:]) }

func (j *jsonRows) Args() []any {
	if len(j.buf) == 0 {
		return []any{"[]"}
	}
	return []any{string(append(j.buf, "]]"...))}
}
