package outbox

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// pairsVersion is the first byte of a stored header or extension list.
const pairsVersion = 0x01

// EncodeHeaders is the stored form of native headers, the same in every SQL
// store: one version byte 0x01, then for each header the length of its name
// (uint32, big endian), the name, the length of its value (uint32, big endian)
// and the value. Order and duplicates are kept. No headers are nil, which
// stores keep as NULL: an empty, non-nil slice reads back as nil.
//
// Names and values must be shorter than 4 GiB; [Record.Normalize] bounds them
// far below. The result is the caller's.
func EncodeHeaders(hs []Header) []byte {
	if len(hs) == 0 {
		return nil
	}
	size := 1
	for i := range hs {
		size += 8 + len(hs[i].Name) + len(hs[i].Value)
	}
	b := append(make([]byte, 0, size), pairsVersion)
	for i := range hs {
		b = binary.BigEndian.AppendUint32(b, uint32(len(hs[i].Name)))
		b = append(b, hs[i].Name...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(hs[i].Value)))
		b = append(b, hs[i].Value...)
	}
	return b
}

// DecodeHeaders reads what [EncodeHeaders] wrote. Nothing, and a version byte
// alone, mean no headers: nil.
//
// The values alias b, each with its capacity cut to its length: b belongs to
// the headers from now on and must not be changed. Where b is borrowed (a
// driver's row buffer), decode bytes.Clone(b). Names are copied. A value of
// no bytes comes back empty and not nil.
//
// It checks the framing only, not what names and values hold. An unknown
// version, an overrun and trailing bytes are errors that name the offset, and
// no headers are returned. It allocates in proportion to len(b), whatever
// the lengths in it claim.
func DecodeHeaders(b []byte) ([]Header, error) {
	n, names, _, err := scanPairs("headers", b)
	if n == 0 || err != nil {
		return nil, err
	}
	hs := make([]Header, n)
	var sb strings.Builder
	sb.Grow(names)
	for i, rest := 0, b[1:]; i < n; i++ {
		var name []byte
		name, rest = cutPrefixed(rest)
		hs[i].Name = appendText(&sb, name)
		hs[i].Value, rest = cutPrefixed(rest)
	}
	return hs, nil
}

// EncodeExtensions is the stored form of CloudEvents extensions, the same as
// that of headers ([EncodeHeaders]).
func EncodeExtensions(xs []Extension) []byte {
	if len(xs) == 0 {
		return nil
	}
	size := 1
	for _, x := range xs {
		size += 8 + len(x.Name) + len(x.Value)
	}
	b := append(make([]byte, 0, size), pairsVersion)
	for _, x := range xs {
		b = binary.BigEndian.AppendUint32(b, uint32(len(x.Name)))
		b = append(b, x.Name...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(x.Value)))
		b = append(b, x.Value...)
	}
	return b
}

// DecodeExtensions reads what [EncodeExtensions] wrote, as [DecodeHeaders]
// does, but copies everything: b stays the caller's.
func DecodeExtensions(b []byte) ([]Extension, error) {
	n, names, values, err := scanPairs("extensions", b)
	if n == 0 || err != nil {
		return nil, err
	}
	xs := make([]Extension, n)
	var sb strings.Builder
	sb.Grow(names + values)
	for i, rest := 0, b[1:]; i < n; i++ {
		var name, value []byte
		name, rest = cutPrefixed(rest)
		value, rest = cutPrefixed(rest)
		xs[i] = Extension{appendText(&sb, name), appendText(&sb, value)}
	}
	return xs, nil
}

// scanPairs checks the framing of b, so that decoding allocates once and
// exactly: n pairs with so many bytes of names and values.
func scanPairs(what string, b []byte) (n, names, values int, err error) {
	if len(b) == 0 {
		return 0, 0, 0, nil
	}
	if b[0] != pairsVersion {
		return 0, 0, 0, fmt.Errorf("stored %s have version %d, this program reads %d", what, b[0], pairsVersion)
	}
	part := func(off int, name string) (int, error) {
		if len(b)-off < 4 {
			return 0, fmt.Errorf("stored %s: %d bytes at offset %d, too few for the 4 of a %s length", what, len(b)-off, off, name)
		}
		size := binary.BigEndian.Uint32(b[off:])
		if rest := len(b) - off - 4; uint64(size) > uint64(rest) {
			return 0, fmt.Errorf("stored %s: a %s at offset %d claims %d bytes, %d are left", what, name, off, size, rest)
		}
		return int(size), nil
	}
	for off := 1; off < len(b); n++ {
		name, err := part(off, "name")
		if err != nil {
			return 0, 0, 0, err
		}
		off += 4 + name
		value, err := part(off, "value")
		if err != nil {
			return 0, 0, 0, err
		}
		off += 4 + value
		names += name
		values += value
	}
	return n, names, values, nil
}

// cutPrefixed cuts a length and its bytes off b, which scanPairs has checked.
func cutPrefixed(b []byte) (part, rest []byte) {
	end := 4 + int(binary.BigEndian.Uint32(b))
	return b[4:end:end], b[end:]
}

// appendText adds b to sb, which has room for it, and returns it as a string
// that shares sb's memory: one allocation for all texts of a list.
func appendText(sb *strings.Builder, b []byte) string {
	start := sb.Len()
	sb.Write(b)
	return sb.String()[start:]
}
