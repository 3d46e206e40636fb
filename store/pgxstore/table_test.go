package pgxstore

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/outbox"
)

// columnTypes are the array types of a message's columns, as EnlistMany has
// them.
var columnTypes = []uint32{
	pgtype.Int4ArrayOID, pgtype.UUIDArrayOID, pgtype.Int8ArrayOID, pgtype.ByteaArrayOID, pgtype.TextArrayOID, pgtype.TextArrayOID,
	pgtype.TextArrayOID, pgtype.TextArrayOID, pgtype.ByteaArrayOID, pgtype.ByteaArrayOID,
}

func fill(t *table, rows int) {
	key, body := []byte("key"), make([]byte, 1024)
	t.Grow(rows)
	for i := range rows {
		t.Int(int64(i))
		t.ID(outbox.ID{15: byte(i)})
		if i%3 == 0 {
			t.Null()
		} else {
			t.Int(int64(i) << 32)
		}
		t.Bytes(key)
		t.Text("default")
		t.Text(`quote " backslash \ brace {,} NULL`)
		t.Text("destination")
		t.Null()
		t.Bytes(nil)
		t.Bytes(body)
	}
}

func TestTableInBinary(t *testing.T) {
	t.Parallel()
	m := pgtype.NewMap()
	for _, rows := range []int{0, 1, 5} {
		w := newTable(len(columnTypes)).(*table)
		fill(w, rows)
		for i, arg := range w.Args() {
			buf, err := m.Encode(columnTypes[i], pgx.BinaryFormatCode, arg, nil)
			if err != nil {
				t.Fatalf("column %d: %v", i, err)
			}
			var got []any
			switch columnTypes[i] {
			case pgtype.UUIDArrayOID:
				got = decoded[pgtype.UUID](t, m, columnTypes[i], buf)
			case pgtype.Int4ArrayOID, pgtype.Int8ArrayOID:
				got = decoded[pgtype.Int8](t, m, columnTypes[i], buf)
			case pgtype.TextArrayOID:
				got = decoded[pgtype.Text](t, m, columnTypes[i], buf)
			default:
				got = decoded[[]byte](t, m, columnTypes[i], buf)
			}
			want := rows
			if i == 7 || i == 8 || i == 2 && rows == 1 {
				want = 0 // all NULL
			}
			if len(got) != want {
				t.Errorf("%d rows, column %d: %d elements, want %d", rows, i, len(got), want)
			}
			for k, v := range got {
				var want any
				switch i {
				case 0:
					want = pgtype.Int8{Int64: int64(k), Valid: true}
				case 1:
					want = pgtype.UUID{Bytes: outbox.ID{15: byte(k)}, Valid: true}
				case 2:
					want = pgtype.Int8{Int64: int64(k) << 32, Valid: k%3 != 0}
					if k%3 == 0 {
						want = pgtype.Int8{}
					}
				case 5:
					want = pgtype.Text{String: `quote " backslash \ brace {,} NULL`, Valid: true}
				default:
					continue
				}
				if v != want {
					t.Errorf("column %d, element %d: got %v, want %v", i, k, v, want)
				}
			}
		}
	}
}

func decoded[T any](t *testing.T, m *pgtype.Map, oid uint32, buf []byte) (list []any) {
	t.Helper()
	var got []T
	if err := m.Scan(oid, pgx.BinaryFormatCode, buf, &got); err != nil {
		t.Fatal(err)
	}
	for _, v := range got {
		list = append(list, v)
	}
	return list
}

// TestTableAsLiterals: where the parameters' types are unknown.
func TestTableAsLiterals(t *testing.T) {
	t.Parallel()
	w := newTable(4).(*table)
	for _, s := range []string{`a"b\c{},NULL`, ""} {
		w.Int(-7)
		w.Text(s)
		w.Bytes([]byte{0, 0xff})
		w.Null()
	}
	want := []string{"{-7,-7}", `{"a\"b\\c{},NULL",""}`, `{"\\x00ff","\\x00ff"}`, "{}"}
	m := pgtype.NewMap()
	for i, arg := range w.Args() {
		buf, err := m.Encode(0, pgx.TextFormatCode, arg, nil)
		if err != nil || string(buf) != want[i] {
			t.Errorf("column %d: got %s, %v, want %s", i, buf, err, want[i])
		}
	}
}

// TestEncodeAllocations: a table parameter costs allocations by its columns.
func TestEncodeAllocations(t *testing.T) {
	allocs := func(rows int) float64 {
		m, sd := pgtype.NewMap(), &pgconn.StatementDescription{ParamOIDs: columnTypes}
		var eqb pgx.ExtendedQueryBuilder
		return testing.AllocsPerRun(20, func() {
			w := newTable(len(columnTypes)).(*table)
			fill(w, rows)
			if err := eqb.Build(m, sd, w.Args()); err != nil {
				t.Fatal(err)
			}
		})
	}
	// The buffer grows by doubling.
	if few, many := allocs(10), allocs(1000); many > few+30 {
		t.Errorf("1,000 rows cost %v allocations, 10 rows %v: they must not grow with the rows", many, few)
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, rows := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			b.ReportAllocs()
			m, sd := pgtype.NewMap(), &pgconn.StatementDescription{ParamOIDs: columnTypes}
			var eqb pgx.ExtendedQueryBuilder
			for b.Loop() {
				w := newTable(len(columnTypes)).(*table)
				fill(w, rows)
				if err := eqb.Build(m, sd, w.Args()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
		})
	}
}
