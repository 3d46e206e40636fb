package pgxstore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/internal/sqlcore"
)

// wireRow is a lane row as the server sends it, and the record that it is.
func wireRow(n int, text bool, body int) (fields []pgconn.FieldDescription, values [][]byte, want outbox.LaneRow) {
	format := int16(1)
	if text {
		format = 0
	}
	add := func(v []byte) {
		fields, values = append(fields, pgconn.FieldDescription{Format: format}), append(values, v)
	}
	number := func(v int64, size int) {
		switch {
		case text:
			add(fmt.Append(nil, v))
		case size == 8:
			add(binary.BigEndian.AppendUint64(nil, uint64(v)))
		case size == 4:
			add(binary.BigEndian.AppendUint32(nil, uint32(v)))
		default:
			add(binary.BigEndian.AppendUint16(nil, uint16(v)))
		}
	}
	blob := func(b []byte) {
		if b != nil && text {
			b = hex.AppendEncode([]byte(`\x`), b)
		}
		add(bytes.Clone(b))
	}
	str := func(s string) { add([]byte(s)) }
	null := func() { add(nil) }

	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	id := outbox.ID{6: 0x70, 8: 0x80, 15: byte(n)}
	key := fmt.Append(nil, "customer-", n)
	data := make([]byte, body)
	for i := range data {
		data[i] = byte(n + i)
	}
	headers := []outbox.Header{{Name: "H", Value: []byte{0, byte(n)}}}

	number(3, 8)
	number(int64(1000+n), 8)
	number(7, 4)
	if text {
		str(id.String())
	} else {
		add(id[:])
	}
	number(outbox.KeyHash(key), 8)
	blob(key)
	str("default")
	str("shop.order.placed.v1")
	str("orders")
	str("application/json")
	if n%2 == 0 {
		blob(outbox.EncodeHeaders(headers))
	} else {
		headers = nil
		null()
	}
	blob(data)
	null()
	number(at.UnixMicro(), 8)
	str("tenant")
	number(0, 2)
	str("/shop")
	str(fmt.Sprint("order-", n))
	null()
	null()
	null()
	str(fmt.Sprint("correlation-", n))
	null()
	null()
	null()
	number(2, 4)
	str("no answer")
	number(at.UnixMicro(), 8)
	number(1, 4)
	if n%2 == 0 {
		null()
	} else {
		number(5, 8)
	}
	if text {
		str("(70000,9)")
	} else {
		add([]byte{0, 1, 0x11, 0x70, 0, 9})
	}
	if n%3 == 0 {
		number(int64(n)<<20, 4)
	} else {
		null()
	}

	want = outbox.LaneRow{
		Lane: 7, Pos: int64(1000 + n), KeyHash: outbox.KeyHash(key), RetryAt: at, Claimed: true, Hint: 70000<<16 | 9,
		Record: outbox.Record{
			ID: id, Transport: "default", Type: "shop.order.placed.v1", CreatedAt: at, Lane: 7, Attempts: 2, LastError: "no answer", TenantID: "tenant",
			Message: outbox.Message{
				Destination: "orders", ContentType: "application/json", Body: data, Key: key, Headers: headers,
				Event:   outbox.Event{Source: "/shop", Subject: fmt.Sprint("order-", n)},
				Context: outbox.ContextFields{CorrelationID: fmt.Sprint("correlation-", n)},
			},
		},
	}
	if n%2 == 1 {
		want.KeyPrev = 5
	}
	return fields, values, want
}

func TestDecodeLaneRow(t *testing.T) {
	t.Parallel()
	for _, text := range []bool{false, true} {
		var d laneDecoder
		rows, wants := make([]outbox.LaneRow, 300), make([]outbox.LaneRow, 300)
		for read := range 3 {
			d.arena.begin()
			for i := range rows {
				// Bodies of no bytes, of some, and larger than a block.
				fields, values, want := wireRow(i+read, text, i%7*1000*(1+i/290*100))
				wants[i] = want
				note, err := d.decode(fields, values, &rows[i])
				wantNote := sqlcore.LaneNote{Read: 3}
				if (i+read)%3 == 0 {
					wantNote.Withheld = (i + read) << 20
				}
				if err != nil || note != wantNote {
					t.Fatalf("text %v, row %d: got %+v, %v, want %+v", text, i, note, err, wantNote)
				}
				for _, v := range values { // lent by the driver
					clear(v)
				}
			}
			for i := range rows {
				if !reflect.DeepEqual(rows[i], wants[i]) {
					t.Fatalf("text %v, read %d, row %d: got\n%+v, want\n%+v", text, read, i, rows[i], wants[i])
				}
			}
		}
	}
}

// TestDecodedBytesDoNotOverlap: appending to a body must not write into the next
// row's key.
func TestDecodedBytesDoNotOverlap(t *testing.T) {
	t.Parallel()
	var d laneDecoder
	d.arena.begin()
	rows := make([]outbox.LaneRow, 2)
	for i := range rows {
		fields, values, _ := wireRow(i, false, 10)
		if _, err := d.decode(fields, values, &rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	_ = append(rows[0].Record.Message.Body, "xxxxxxxxxxxxxxxxxxxxxxxx"...)
	_ = append(rows[0].Record.Message.Key, "xxxxxxxxxxxxxxxxxxxxxxxx"...)
	if got := string(rows[1].Record.Message.Key); got != "customer-1" {
		t.Errorf("the next row's key is %q", got)
	}
}

func TestDecodeBrokenRows(t *testing.T) {
	t.Parallel()
	good := func() ([]pgconn.FieldDescription, [][]byte) {
		fields, values, _ := wireRow(0, false, 10)
		return fields, values
	}
	for name, tc := range map[string]struct {
		change func(fields []pgconn.FieldDescription, values [][]byte) [][]byte
		says   string
		row    bool // the row is bad, not the answer
	}{
		"columns":  {func(_ []pgconn.FieldDescription, v [][]byte) [][]byte { return v[:29] }, "no such column", false},
		"number":   {func(_ []pgconn.FieldDescription, v [][]byte) [][]byte { v[1] = v[1][:3]; return v }, "are not a number", false},
		"escape":   {func(f []pgconn.FieldDescription, v [][]byte) [][]byte { f[11].Format = 0; return v }, "bytea_output", false},
		"id":       {func(_ []pgconn.FieldDescription, v [][]byte) [][]byte { v[3] = v[3][:9]; return v }, "column 4", false},
		"headers":  {func(_ []pgconn.FieldDescription, v [][]byte) [][]byte { v[10] = []byte{9}; return v }, "version 9", true},
		"key hash": {func(_ []pgconn.FieldDescription, v [][]byte) [][]byte { v[4][0]++; return v }, "key_hash", true},
		"type":     {func(_ []pgconn.FieldDescription, v [][]byte) [][]byte { v[7] = nil; return v }, "is empty", true},
		"attempts": {func(_ []pgconn.FieldDescription, v [][]byte) [][]byte {
			v[25] = []byte{0xff, 0xff, 0xff, 0xff}
			return v
		}, "attempts are -1", true},
	} {
		var d laneDecoder
		var row outbox.LaneRow
		fields, values := good()
		_, err := d.decode(fields, tc.change(fields, values), &row)
		if tc.row {
			if err != nil || row.Pos != 1000 {
				t.Errorf("%s: the read fails with %v", name, err)
			}
			err = row.Err
		}
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.says)
		}
	}
}

// TestDecodeAllocations: a read of rows with bodies of 1 KiB, subjects and
// correlation ids of their own costs blocks of memory, not allocations per row.
func TestDecodeAllocations(t *testing.T) {
	const rows = 500
	type wire struct {
		fields []pgconn.FieldDescription
		values [][]byte
	}
	in := make([]wire, rows)
	for i := range in {
		in[i].fields, in[i].values, _ = wireRow(2*i+1, false, 1024) // without headers
	}
	var d laneDecoder
	dst := make([]outbox.LaneRow, rows)
	got := testing.AllocsPerRun(20, func() {
		d.arena.begin()
		for i := range in {
			if _, err := d.decode(in[i].fields, in[i].values, &dst[i]); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got > 24 {
		t.Errorf("%d rows cost %v allocations, limit 24", rows, got)
	}
	// Headers are a list and its names.
	in[0].fields, in[0].values, _ = wireRow(0, false, 1024)
	if more := testing.AllocsPerRun(20, func() {
		d.decode(in[0].fields, in[0].values, &dst[0])
	}); more > 3 {
		t.Errorf("a row with headers costs %v allocations, limit 3", more)
	}
}

func TestWordsAreBounded(t *testing.T) {
	t.Parallel()
	var w words
	for i := range 10_000 {
		s := fmt.Sprint("subject-", i)
		if got := w.get(8, []byte(s)); got != s {
			t.Fatalf("got %q, want %q", got, s)
		}
	}
	long := strings.Repeat("x", maxWord+1)
	if got := w.get(8, []byte(long)); got != long {
		t.Error("a long text came back changed")
	}
	for _, s := range append(w.hashed[:], w.last[:]...) {
		if len(s) > maxWord {
			t.Error("a long text was kept")
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, text := range []bool{false, true} {
		name := "binary"
		if text {
			name = "text"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			fields, values, _ := wireRow(1, text, 1024)
			var d laneDecoder
			dst := make([]outbox.LaneRow, 500)
			for i := 0; b.Loop(); i++ {
				if i%len(dst) == 0 {
					d.arena.begin()
				}
				if _, err := d.decode(fields, values, &dst[i%len(dst)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
