package pgxstore

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/outbox"
)

// row is a sqlcore.Row: the columns that the statements return, numbers, ids,
// bytes and text, binary or not.
type row struct{ rows pgx.Rows }

func (r row) Scan(dst ...any) error {
	fields, values := r.rows.FieldDescriptions(), r.rows.RawValues()
	if len(dst) != len(values) {
		return fmt.Errorf("%d columns came back, want %d", len(values), len(dst))
	}
	for i, d := range dst {
		if err := scan(d, fields[i].DataTypeOID, values[i], fields[i].Format == pgx.TextFormatCode); err != nil {
			return fmt.Errorf("column %s: %w", fields[i].Name, err)
		}
	}
	return nil
}

func scan(dst any, oid uint32, v []byte, text bool) (err error) {
	var n int64
	switch d := dst.(type) {
	case *int64:
		*d, err = parseInt(v, text)
	case *int:
		n, err = parseInt(v, text)
		*d = int(n)
	case *outbox.Lane:
		n, err = parseInt(v, text)
		*d = outbox.Lane(n)
	case *string:
		*d = string(v)
	case *any:
		*d = nil // of a function that returns nothing
	case interface{ Scan(src any) error }:
		return scanInto(d, oid, v, text)
	default:
		return fmt.Errorf("cannot scan into %T", dst)
	}
	return err
}

func scanInto(d interface{ Scan(src any) error }, oid uint32, v []byte, text bool) error {
	if v == nil {
		return d.Scan(nil)
	}
	switch oid {
	case pgtype.UUIDOID:
		id, err := parseID(v)
		if err != nil {
			return err
		}
		if c, ok := d.(interface{ SetID(outbox.ID) }); ok {
			c.SetID(id)
			return nil
		}
		return d.Scan([16]byte(id))
	case pgtype.Int8OID, pgtype.Int4OID, pgtype.Int2OID:
		n, err := parseInt(v, text)
		if err != nil {
			return err
		}
		if c, ok := d.(interface{ SetInt(int64) }); ok {
			c.SetInt(n)
			return nil
		}
		return d.Scan(n)
	case pgtype.ByteaOID:
		if !text {
			return d.Scan(v)
		}
		b, err := parseBytes(v, text, func(n int) []byte { return make([]byte, 0, n) })
		if err != nil {
			return err
		}
		return d.Scan(b)
	}
	return d.Scan(string(v))
}

func parseInt(v []byte, text bool) (int64, error) {
	switch {
	case text:
		return strconv.ParseInt(string(v), 10, 64)
	case len(v) == 8:
		return int64(binary.BigEndian.Uint64(v)), nil
	case len(v) == 4:
		return int64(int32(binary.BigEndian.Uint32(v))), nil
	case len(v) == 2:
		return int64(int16(binary.BigEndian.Uint16(v))), nil
	}
	return 0, fmt.Errorf("%d bytes are not a number", len(v))
}

// parseID takes 16 bytes or the text of a UUID.
func parseID(v []byte) (id outbox.ID, err error) {
	if len(v) == len(id) {
		return outbox.ID(v), nil
	}
	err = id.UnmarshalText(v)
	return id, err
}

// parseBytes copies v into what room makes.
func parseBytes(v []byte, text bool, room func(n int) []byte) ([]byte, error) {
	switch {
	case !text:
		return append(room(len(v)), v...), nil
	case len(v) < 2 || v[0] != '\\' || v[1] != 'x':
		return nil, errors.New("not bytes in hexadecimal: set bytea_output to hex")
	}
	return hex.AppendDecode(room(len(v)/2-1), v[2:])
}
