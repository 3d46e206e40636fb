package sqlcore

import (
	"context"
	"database/sql"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// noted keeps arguments as they are.
type noted struct {
	ran  []string
	args [][]any
}

func (n *noted) exec(t *testing.T, text string, args ...any) int64 {
	t.Helper()
	q := &argScripted{n: n}
	changed, err := stepper{q, map[string]script{text: parseScript(text)}, ":"}.Exec(t.Context(), text, args...)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// argScripted notes texts and arguments apart, and changes three rows each time.
type argScripted struct{ n *noted }

func (q *argScripted) Exec(_ context.Context, text string, args ...any) (int64, error) {
	q.n.ran, q.n.args = append(q.n.ran, text), append(q.n.args, args)
	return 3, nil
}

func (q *argScripted) Query(_ context.Context, text string, args []any, _ func(Row) error) error {
	_, err := q.Exec(context.Background(), text, args...)
	return err
}

func TestArrays(t *testing.T) {
	t.Parallel()
	const text = "UPDATE t SET a = #1, b = #2^, c = #3$ WHERE d = ?2 AND e = #4! AND f = #0 AND g = #5 AND h = #6"
	const marks = "UPDATE t SET a = :1, b = :2, c = :3 WHERE d = :4 AND e = :5 AND f = :6 AND g = :7 AND h = :8"
	id := outbox.ID{15: 1}
	long := strings.Repeat("x", heldText-1) + "\u00e9"
	var n noted
	changed := n.exec(t, text, append(table(6, 7, "one", nil, []byte{}, 8, id, 9, nil, nil, nil, nil, nil), "z")...)
	want := []any{[]int64{7, 9}, []string{"one", ""}, [][]byte{nil, nil}, []string{"z", "z"}, []int64{1, 0}, []int64{1, 2},
		[]sql.NullInt64{{Int64: 8, Valid: true}, {}}, [][]byte{id[:], nil}}
	if changed != 3 || len(n.args) != 1 || n.ran[0] != marks || !reflect.DeepEqual(n.args[0], want) {
		t.Errorf("an array: %d, %q\n got %#v\nwant %#v", changed, n.ran, n.args, want)
	}

	// A row alone has values, and so has one that is too large, in its place.
	n = noted{}
	changed = n.exec(t, text, append(table(6, 1, "a", nil, nil, nil, nil, 2, long, nil, nil, nil, nil, 3, "c", nil, nil, nil, nil, 4, "d", nil, make([]byte, heldBytes+1), nil, nil, 5, "e", nil, nil, nil, nil, 6, "f", nil, nil, nil, nil), "z")...)
	if changed != 15 || len(n.args) != 5 {
		t.Fatalf("five statements: %d, %d of them", changed, len(n.args))
	}
	if got := n.args[0]; !reflect.DeepEqual(got, []any{int64(1), "a", []byte(nil), "z", int64(0), int64(1), nil, nil}) {
		t.Errorf("a row alone: %#v", got)
	}
	if got := n.args[1][1]; got != long[:heldText-1] {
		t.Errorf("a text that was cut has %d bytes", len(got.(string)))
	}
	if got := n.args[4][0]; !reflect.DeepEqual(got, []int64{5, 6}) {
		t.Errorf("the last rows: %#v", got)
	}
	n = noted{}
	if changed := n.exec(t, text, append(table(6), "z")...); changed != 0 || len(n.ran) != 0 {
		t.Errorf("no rows: %d, ran %q", changed, n.ran)
	}
}

func TestListsAreCut(t *testing.T) {
	t.Parallel()
	const text = "> SELECT [< UNION |F(?1)>] AND a = ?2 AND [< UNION |G(?3)>]"
	w, f := &tableRows{columns: 3}, &tableRows{columns: 1}
	for i := range 320 {
		w.Int(int64(i))
		w.Text("\"\u00e9")
		w.ID(outbox.ID{15: byte(i)})
	}
	q := &argScripted{n: &noted{}}
	if err := (stepper{q, map[string]script{text: parseScript(text)}, ":"}).Query(t.Context(), text, []any{w, "z", f}, nil); err != nil {
		t.Fatal(err)
	}
	want := "SELECT F(:1) UNION F(:2) UNION F(:3) UNION F(:4) UNION F(:5) UNION F(:6) UNION F(:7) UNION F(:8) AND a = :9 AND G(:10)"
	args := q.n.args[0]
	if q.n.ran[0] != want || args[8] != "z" || args[9] != "[]" {
		t.Fatalf("ran %q with %v", q.n.ran, args[8:])
	}
	next := 0
	for _, part := range args[:8] {
		var rows [][]any
		if err := json.Unmarshal([]byte(part.(string)), &rows); err != nil || len(part.(string)) > heldText {
			t.Fatalf("%d bytes: %v", len(part.(string)), err)
		}
		for _, row := range rows {
			id := outbox.ID{15: byte(next)}
			hex := strings.ReplaceAll(id.String(), "-", "")
			if !reflect.DeepEqual(row, []any{float64(next + 1), float64(next), "\"\u00e9", hex}) {
				t.Fatalf("row %d: %v", next, row)
			}
			next++
		}
	}
	if next != 320 {
		t.Errorf("%d rows came over", next)
	}
}

func TestEmptyBody(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		body     []byte
		envelope int64
		want     []byte
	}{{nil, 1, nil}, {nil, emptyBody + 1, []byte{}}, {[]byte("a"), 1, []byte("a")}, {[]byte("a"), emptyBody + 1, []byte("a")}} {
		if body, envelope := bodyOf(tc.body, tc.envelope); envelope != 1 || !reflect.DeepEqual(body, tc.want) {
			t.Errorf("%v, %d: got %#v, %d", tc.body, tc.envelope, body, envelope)
		}
	}
}
