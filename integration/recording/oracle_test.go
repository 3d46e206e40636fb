package recording_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/sijms/go-ora/v2"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// What github.com/sijms/go-ora/v2 v2.8.24 does, by its source.

// checkOracle: its own NamedValueChecker lets everything through, and the types are
// looked at when the statement is written (ParameterInfo.setDataType). These are
// those that this store may use.
func checkOracle(nv *driver.NamedValue) error {
	switch nv.Value.(type) {
	case nil, int64, string, []byte, []int64, []string, [][]byte, []sql.NullInt64:
		return nil
	}
	return fmt.Errorf("argument %d is a %T", nv.Ordinal, nv.Value)
}

var (
	arrayText  = regexp.MustCompile(`^(INSERT|UPDATE|DELETE|MERGE)\b`)
	directBind = regexp.MustCompile(`(?:[(,] |= |\()$`)
)

// argsOracle: an array is one only in a statement that writes, where all arguments
// are arrays (Stmt._exec); what is longer than a string or bytes of SQL may be goes
// over as a LONG, which only stands for a value by itself (ORA-01461); and no long
// value is one of an array (ORA-03146).
func argsOracle(text string, args []driver.NamedValue) error {
	arrays, size := 0, -1
	for _, a := range args {
		v := reflect.ValueOf(a.Value)
		if a.Value == nil || v.Kind() != reflect.Slice || v.Type().Elem().Kind() == reflect.Uint8 {
			n := 0
			switch v := a.Value.(type) {
			case string:
				if n = len(v); n <= 4000 {
					n = 0
				}
			case []byte:
				if n = len(v); n <= 2000 {
					n = 0
				}
			}
			if n > 0 && !alone(text, a.Ordinal) {
				return fmt.Errorf("argument %d of %d bytes stands in an expression", a.Ordinal, n)
			}
			continue
		}
		arrays++
		if size >= 0 && v.Len() != size || v.Len() < 2 {
			return fmt.Errorf("argument %d has %d rows, others %d", a.Ordinal, v.Len(), size)
		}
		size = v.Len()
		for i := range v.Len() {
			if n := v.Index(i); n.Kind() == reflect.String && n.Len() > 4000 || n.Kind() == reflect.Slice && n.Len() > 2000 {
				return fmt.Errorf("argument %d has a value of %d bytes in an array", a.Ordinal, n.Len())
			}
		}
	}
	switch {
	case arrays > 0 && arrays < len(args):
		return fmt.Errorf("%d of %d arguments are arrays", arrays, len(args))
	case arrays > 0 && !arrayText.MatchString(text):
		return fmt.Errorf("arrays in a statement that is run once")
	}
	return nil
}

// alone tells that an argument is a value of VALUES, or what a column is set to.
func alone(text string, n int) bool {
	mark := ":" + strconv.Itoa(n)
	at := regexp.MustCompile(regexp.QuoteMeta(mark) + `\b`).FindStringIndex(text)
	if at == nil || !directBind.MatchString(text[:at[0]]) {
		return false
	}
	_, values, insert := strings.Cut(text[:at[0]], "VALUES (")
	_, set, update := strings.Cut(text[:at[0]], " SET ")
	return insert && strings.Count(values, "(") == strings.Count(values, ")") || update && !strings.Contains(set, "WHERE")
}

// valueOracle: numbers come as their digits (Number.String), large objects, fetched
// with their rows, as text or bytes, and what is empty as NULL.
func valueOracle(v any) driver.Value {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case string:
		if v == "" {
			return nil
		}
	case name:
		return []byte(v)
	case []byte:
		if len(v) == 0 {
			return nil
		}
	}
	return v
}

// rowOracle marks a row whose message has a body of no bytes, as the texts do.
func rowOracle(statement string, r row) row {
	at := map[string]int{"ReadRanges": 1, "ReadKeys": 1, "ReadLane": 0, "ReadUnordered": 0, "Promote": 0, "ListDead": 0, "ListDeadOf": 0}
	from, ok := at[statement]
	if !ok {
		return r
	}
	const body, envelope = 10, 14 // after the position
	if b, ok := r[from+body].([]byte); ok && b != nil && len(b) == 0 {
		r = append(row{}, r...)
		r[from+envelope] = r[from+envelope].(int64) + 1<<16
	}
	return r
}

// TestOracleLongValues: what is too long for a string of SQL goes over by itself, in
// its place among the others.
func TestOracleLongValues(t *testing.T) {
	t.Parallel()
	e := engines[slices.IndexFunc(engines, func(e *engine) bool { return e.mark == ":" && e.users })]
	r := newRecorder(t, e)
	d := newDrive(t, r, r.open(t))
	d.routes()
	long := strings.Repeat("\u00e9", outbox.MaxReason/2)
	sized := func(n byte, size int) outbox.Record {
		rec := bare(n)
		rec.Message.Body = make([]byte, size)
		return rec
	}
	traced := bare(6)
	traced.Message.Context.TraceParent = full(6).Message.Context.TraceParent
	traced.Message.Context.TraceState = strings.TrimSuffix(strings.Repeat("abcdefgh=0123456789,", 204), ",")
	d.r.changing("QueueMany", 1)
	recs := []outbox.Record{sized(1, 0), sized(2, 2000), sized(3, 40_000), sized(4, 2001), sized(5, 1), traced}
	err := d.inTx(t, func(tx *sql.Tx) error { return d.s.Enlist(t.Context(), tx, recs...) })
	// The recorder says that each statement has changed one row, and one was to change
	// two; what matters is how they were called.
	if err == nil {
		t.Error("five statements for six records went through as six rows")
	}
	var sizes []string
	for _, call := range r.calls["QueueMany"] {
		for line := range strings.Lines(call) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "24" {
				sizes = append(sizes, fields[1])
			}
		}
	}
	if want := []string{"[][]uint8", "[]uint8", "[]uint8", "[]uint8", "[]uint8"}; !slices.Equal(sizes, want) {
		t.Errorf("bodies went over as %q, want %q", sizes, want)
	}

	d.r.on("Fence", row{int64(1), int64(0)})
	rowID := id(1)
	d.r.on("FindHot", row{int64(1), rowID[:], int64(1), nil, nil})
	d.r.on("Defer", row{int64(1), rowID[:]})
	for _, outcome := range []outbox.SettleOutcome{outbox.SettleFailed, outbox.SettleDead} {
		_, err = d.s.SettleLanes(t.Context(), outbox.SettleRequest{Owner: id(0xa1), Settlements: []outbox.Settlement{
			{Lane: 1, Epoch: 4, Pos: 5, ID: rowID, Outcome: outcome, Reason: long, Attempts: 1, Attempt: true}}})
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := d.s.ParkKey(t.Context(), outbox.ParkedKey{Route: "default", Key: []byte("k"), By: long, Why: long}); err != nil {
		t.Error(err)
	}
	for _, s := range r.bad {
		t.Error(s)
	}
}

// TestOracleDriverIsKnown: the driver itself, which connects to nothing here.
func TestOracleDriverIsKnown(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("oracle", "oracle://u:p@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := sqlstore.New(db, sqlstore.MySQL, nil); err == nil || !strings.Contains(err.Error(), "use sqlstore.Oracle") {
		t.Errorf("with MySQL's dialect: %v", err)
	}
	if _, err := sqlstore.New(db, sqlstore.Oracle, nil); err != nil {
		t.Errorf("with its own: %v", err)
	}
}
