package sqlcore

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
)

// serverError is like the driver's: its number is all that is known of it here.
type serverError int32

func (e serverError) Error() string         { return fmt.Sprintf("mssql: something (%d)", int32(e)) }
func (e serverError) SQLErrorNumber() int32 { return int32(e) }

func TestSQLServerErrors(t *testing.T) {
	t.Parallel()
	s := &Store{d: SQLServer, q: &texts{}, Config: Config{Options: Options{Prefix: "p_"}}}
	for number, want := range map[int32]error{
		208: outbox.ErrSchema, 229: outbox.ErrRefused, 262: outbox.ErrRefused, 515: outbox.ErrRefused, 547: outbox.ErrRefused, 2627: outbox.ErrRefused,
		2628: outbox.ErrRefused, 3906: outbox.ErrRefused, 50000: outbox.ErrRefused, 60001: outbox.ErrRefused,
		1205: nil, 1222: nil, 3960: nil, lockRefused: nil, 40501: nil, 18456: nil,
	} {
		err := fmt.Errorf("driver: %w", serverError(number))
		got := s.explain(t.Context(), relays, err)
		if !errors.Is(got, err) || want != nil && !errors.Is(got, want) || want == nil && got != err {
			t.Errorf("%d: got %v, want %v", number, got, want)
		}
		busy := number == 1205 || number == 1222 || number == 3960 || number == lockRefused
		if SQLServer.busy(err) != busy {
			t.Errorf("%d: busy is %v", number, !busy)
		}
		if taken := number == 2627; SQLServer.taken(err) != taken {
			t.Errorf("%d: taken is %v", number, !taken)
		}
	}
	if n := numberSQLServer(errors.New("mssql: something (208)")); n != 0 {
		t.Errorf("an error without a number has %d", n)
	}
}

// Messages go over as a list, and their bytes beside it, where no two lengths make
// two plans.
func TestSQLServerMessages(t *testing.T) {
	t.Parallel()
	write := func(body int) []any {
		w := SQLServer.rows(len(messageColumns))
		w.Grow(1)
		e := entry{&outbox.Record{Transport: "r", Message: outbox.Message{Key: []byte{0}, Body: make([]byte, body), Headers: []outbox.Header{{Name: "h"}}}}, 7}
		e.write(w)
		return w.Args()
	}
	args := write(0)
	list, data := args[0].(string), args[1].([]byte)
	// The key, the route, headers and an empty body; no extensions.
	if !strings.Contains(list, `,1,1,2,1,"","",null,3,`) || !strings.Contains(list, `,0,null,`) {
		t.Errorf("places are wrong: %s", list)
	}
	if !bytes.HasPrefix(data, []byte{0, 'r', 1, 0, 0, 0, 1, 'h'}) {
		t.Errorf("bytes are wrong: %x", data)
	}
	lengths := map[int]bool{}
	for n := range 9000 {
		args := write(n)
		lengths[len(args[1].([]byte))] = true
	}
	below := 0
	for n := range lengths {
		if n <= 8000 {
			below++
		}
	}
	if below != 7 {
		t.Errorf("%d lengths up to 8,000: %v", below, lengths)
	}
	for text, want := range map[string]int{"": 0, "a": 1, "\u00e9\u4e16": 2, "\U0001F600": 2} {
		if got := unitsUTF16(text); got != want {
			t.Errorf("%q has %d units, want %d", text, got, want)
		}
	}
	for _, tc := range [][2]int{{0, 128}, {128, 128}, {129, 256}, {2049, 4000}, {4000, 4000}, {4001, 4001}} {
		if got := tc[0] + room(tc[0], 4000); got != tc[1] {
			t.Errorf("%d becomes %d, want %d", tc[0], got, tc[1])
		}
	}
}

// What a server would refuse, or take and be slow or wrong with.
func TestSQLServerTexts(t *testing.T) {
	t.Parallel()
	for name, text := range statements(SQLServer, schema.Names{}) {
		for _, wrong := range []struct{ is, why string }{
			{`(?i)\blane (=|BETWEEN) @p`, "a lane is compared with a number of another type"},
			{`(?i)\b(id|owner) [=>] @p`, "an id is compared with bytes of another type"},
			{`(?i)FOR UPDATE|LIMIT|GREATEST|RETURNING|\bnow\(`, "a word of another engine"},
			{`[^?]\?\d|\$\d`, "an argument of another engine"},
			{`[^T], \d{10,}|[^,] \d{10,}`, "a number is a decimal"},
			{`CASE[^;]*NEXT VALUE FOR[^;]*END`, "a number may not be drawn on a condition"},
			{`(?i)NOLOCK|HOLDLOCK|SERIALIZABLE`, "a read of what is not committed, or a lock on a range"},
		} {
			if m := regexp.MustCompile(wrong.is).FindString(strings.ReplaceAll(text, "'$[", "'")); m != "" {
				t.Errorf("%s: %s: %s", name, wrong.why, m)
			}
		}
		for _, hints := range regexp.MustCompile(`WITH \(([^()]*(?:\([^()]*\)[^()]*)*)\)`).FindAllStringSubmatch(text, -1) {
			h := hints[1]
			if strings.Contains(h, "READPAST") != strings.Contains(h, "READCOMMITTEDLOCK") {
				t.Errorf("%s: READPAST goes with READCOMMITTEDLOCK: %s", name, h)
			}
			if strings.Contains(h, "UPDLOCK") && !strings.Contains(h, "ROWLOCK") || strings.Contains(h, "XLOCK") && !strings.Contains(h, "ROWLOCK") {
				t.Errorf("%s: a lock is not of rows: %s", name, h)
			}
		}
		// The driver looks at the rows of the first statement that has some.
		answers := 0
		for _, part := range strings.Split(text, ";\n") {
			head := strings.TrimSpace(part)
			if strings.HasPrefix(head, "SELECT") || strings.Contains(head, "OUTPUT") && !strings.Contains(head, "OUTPUT inserted.id INTO") {
				answers++
			}
		}
		if answers > 1 {
			t.Errorf("%s: %d statements have rows", name, answers)
		}
	}
}

// A script for deployment tooling: names are bytes, and VALUES take no more rows than
// the server does.
func TestSQLServerScript(t *testing.T) {
	t.Parallel()
	text, err := Script(SQLServer, Options{Schema: "shop", Routes: []outbox.Route{{Name: "caf\u00e9 '", Ordered: 1024, Unordered: 1024}}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "EXEC (N'CREATE SCHEMA [shop]');\n") || !strings.Contains(text, "VALUES (0x636166c3a92027, 1, 1024, 1024);") {
		t.Errorf("the schema or the route is missing: %.200q ... %.200q", text, text[strings.LastIndex(text, "[postrider_routes]"):])
	}
	lanes, marks := 0, 0
	for _, insert := range strings.Split(text, "INSERT INTO ") {
		rows := strings.Count(insert, "(") - 1
		switch {
		case strings.HasPrefix(insert, "[shop].[postrider_lanes]"):
			lanes += rows
		case strings.HasPrefix(insert, "[shop].[postrider_lane_marks]"):
			marks += rows
		default:
			continue
		}
		if rows > 1000 {
			t.Errorf("an INSERT has %d rows, limit 1000", rows)
		}
	}
	if lanes != 2048 || marks != 2048 {
		t.Errorf("%d lanes and %d marks, want 2048", lanes, marks)
	}
}
