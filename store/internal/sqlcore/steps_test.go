package sqlcore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// scripted is a querier that notes what runs, and answers with so many rows.
type scripted struct {
	ran  []string
	rows map[string]int
	fail string
}

func (s *scripted) Exec(_ context.Context, text string, args ...any) (int64, error) {
	s.ran = append(s.ran, fmt.Sprint(text, args))
	if text == s.fail {
		return 0, errors.New("failed")
	}
	return int64(s.rows[text]), nil
}

func (s *scripted) Query(_ context.Context, text string, args []any, scan func(Row) error) error {
	s.ran = append(s.ran, fmt.Sprint(text, args))
	for range s.rows[text] {
		if err := scan(nil); err != nil {
			return err
		}
	}
	return nil
}

func table(columns int, values ...any) []any {
	w := &tableRows{columns: columns}
	for _, v := range values {
		switch v := v.(type) {
		case int:
			w.Int(int64(v))
		case string:
			w.Text(v)
		case []byte:
			w.Bytes(v)
		case outbox.ID:
			w.ID(v)
		default:
			w.Null()
		}
	}
	return w.Args()
}

func TestScripts(t *testing.T) {
	t.Parallel()
	id := outbox.ID{15: 1}
	for name, tc := range map[string]struct {
		text string
		args []any
		rows map[string]int
		ran  []string
		exec int64 // rows that Exec tells of
	}{
		"numbered arguments":         {"A ?2 ?1 ?2", []any{"x", "y"}, map[string]int{"A ? ? ?": 3}, []string{"A ? ? ?[y x y]"}, 3},
		"one that stands for itself": {"> A ?1", []any{1}, map[string]int{"A ?": 2}, []string{"A ?[1]"}, 2},
		"a list as JSON": {"A ?1 ?2", append(table(3, 7, "\"", []byte{0xff}, nil, "b", id), "z"), nil,
			[]string{`A ? ?[[[7,"\"","ff"],[null,"b","00000000000000000000000000000001"]] z]`}, 0},
		"a list row by row": {"A ?2 [[, |(#1, #0, #1, ?2)]] B ?2", append(table(1, 7, 8), "z"), nil,
			[]string{"A ? (?, ?, ?, ?), (?, ?, ?, ?) B ?[z 7 1 7 z 8 2 8 z z]"}, 0},
		"a list in a list": {"A [[ OR |a = #1 AND b IN (#2..)]]", table(2, 1, 7, 1, 8, 2, 9, 1, 6), nil,
			[]string{"A a = ? AND b IN (?, ?) OR a = ? AND b IN (?) OR a = ? AND b IN (?)[1 7 8 2 9 1 6]"}, 0},
		"an empty list":      {"A [[, |(#1)]]", table(1), nil, []string{"A []"}, 0},
		"changes add up":     {"A ?1;; B ?1", []any{1}, map[string]int{"A ?": 2, "B ?": 3}, []string{"A ?[1]", "B ?[1]"}, 5},
		"the answer counts":  {"> A;; B", nil, map[string]int{"A": 2, "B": 7}, []string{"A[]", "B[]"}, 2},
		"no answer, no more": {"> A;; B", nil, nil, []string{"A[]"}, 0},
		"a condition holds":  {"if A;; B", nil, map[string]int{"A": 1, "B": 7}, []string{"A[]", "B[]"}, 7},
		"a condition fails":  {"if A;; B", nil, nil, []string{"A[]"}, 0},
		"the last answers":   {"A;; > B", nil, map[string]int{"A": 9, "B": 1}, []string{"A[]", "B[]"}, 1},
	} {
		sc := parseScript(tc.text)
		q := &scripted{rows: tc.rows}
		n, err := stepper{q, map[string]script{tc.text: sc}, ""}.Exec(t.Context(), tc.text, tc.args...)
		if err != nil || n != tc.exec || !reflect.DeepEqual(q.ran, tc.ran) {
			t.Errorf("%s: got %d, %v, ran %q, want %d, %q", name, n, err, q.ran, tc.exec, tc.ran)
		}
	}
}

// Where arguments have numbers they count on through a statement, whatever stands
// for what.
func TestNumberedMarks(t *testing.T) {
	t.Parallel()
	const text = "A ?2 ?1 [[, |(#1, ?2)]];; B ?2"
	q := &scripted{}
	if _, err := (stepper{q, map[string]script{text: parseScript(text)}, "@p"}).Exec(t.Context(), text, append(table(1, 7, 8), "z")...); err != nil {
		t.Fatal(err)
	}
	if want := []string{"A @p1 @p2 (@p3, @p4), (@p5, @p6)[z [[7],[8]] 7 z 8 z]", "B @p1[z]"}; !reflect.DeepEqual(q.ran, want) {
		t.Errorf("ran %q, want %q", q.ran, want)
	}
}

// A script that fails goes no further, and what is no script passes through.
func TestScriptsThatFail(t *testing.T) {
	t.Parallel()
	const text = "A;; B;; C"
	q := &scripted{fail: "B"}
	s := stepper{q, map[string]script{text: parseScript(text)}, ""}
	if n, err := s.Exec(t.Context(), text); err == nil || n != 0 || strings.Join(q.ran, "") != "A[]B[]" {
		t.Errorf("got %d, %v, ran %q", n, err, q.ran)
	}
	q.ran = nil
	if _, err := s.Exec(t.Context(), "?1 ;; #2"); err != nil || strings.Join(q.ran, "") != "?1 ;; #2[]" {
		t.Errorf("a text of no script: %v, ran %q", err, q.ran)
	}
}
