package sqlstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// awkward are records whose values have a meaning in some encoding: of arrays,
// of JSON, of SQL.
func awkward() []outbox.Record {
	texts := []string{
		"NULL", "null", "", `"`, `\`, `\\"`, "{}", "{a,b}", "[1]", "','", "a,b", " leading", "trailing ", `{"x":1}`, `\x00ff`, "$1", "?1", "%s", "'; --",
		"\u00e9\u4e16\U0001F600", "\u2028", "--", "true", "0", "1e3", "E'\\n'",
	}
	blobs := [][]byte{nil, {}, {0}, {0, 0}, []byte(`\`), []byte("NULL"), {0xff, 0xfe}, []byte(`"`), []byte(`\x41`), bytes.Repeat([]byte{0x5c, 0}, 300)}
	var recs []outbox.Record
	for i, text := range texts {
		r := record("")
		m := &r.Message
		m.Body = blobs[i%len(blobs)]
		if k := blobs[(i+3)%len(blobs)]; len(k) > 0 {
			m.Key = k
		}
		r.TenantID, m.ContentType, m.Event.Subject, m.Event.DataSchema = text, text, text, text
		m.Context = outbox.ContextFields{CorrelationID: text, CausationID: text, TraceState: text}
		r.Type, m.Destination, m.Event.Source = "t"+text, "d"+text, "s"+text
		m.Headers = []outbox.Header{{Name: "h" + text, Value: []byte(text)}, {Name: "H" + text, Value: blobs[i%len(blobs)]}, {Name: "h" + text, Value: nil}}
		m.Event.Extensions = []outbox.Extension{{Name: "ext", Value: text}}
		m.Event.Time = time.Date(1999, 12, 31, 23, 59, 59, 999_999_999, time.FixedZone("x", 3600))
		recs = append(recs, r)
	}
	return recs
}

// TestAwkwardValues writes them one by one and all at once, which are different
// encodings, and reads them as pending records, as lane rows and as dead
// letters.
func TestAwkwardValues(t *testing.T) { onAll(t, awkwardValues) }

func awkwardValues(t *testing.T, e engine) {
	s, db, _ := e.migrated(t, nil)
	single, many := awkward(), awkward()
	for _, r := range single {
		enlist(t, s, db, r)
	}
	enlist(t, s, db, many...)
	want := map[outbox.ID]outbox.Record{}
	for _, r := range append(single, many...) {
		if err := r.Normalize(0); err != nil {
			t.Fatal(err)
		}
		for i := range r.Message.Headers {
			if r.Message.Headers[i].Value == nil {
				r.Message.Headers[i].Value = []byte{}
			}
		}
		want[r.ID] = r
	}
	compare := func(how string, got outbox.Record) {
		t.Helper()
		got.Lane, got.Attempts, got.LastError = 0, 0, ""
		if w := want[got.ID]; !reflect.DeepEqual(got, w) {
			t.Errorf("%s: got\n%+v, want\n%+v", how, got, w)
		}
	}
	owner := outbox.NewID()
	g, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 100, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var reads []outbox.LaneRead
	for _, l := range g.Leases {
		reads = append(reads, outbox.LaneRead{Lane: l.Lane})
	}
	rows := make([]outbox.LaneRow, 64*len(reads))
	n, err := s.ReadLanes(t.Context(), reads, rows)
	if err != nil || n != len(want) {
		t.Fatalf("lane rows: got %d, %v, want %d", n, err, len(want))
	}
	bury := outbox.SettleRequest{Owner: owner}
	for _, r := range rows[:n] {
		if r.Err != nil {
			t.Errorf("row %s: %v", r.Record.ID, r.Err)
		}
		compare("lane row", r.Record)
		bury.Settlements = append(bury.Settlements, outbox.Settlement{
			Lane: r.Lane, Epoch: 1, Pos: r.Pos, ID: r.Record.ID, Outcome: outbox.SettleDead, Attempt: true, Reason: "reason " + r.Record.TenantID,
		})
		// By key: the bytes of a key in a list.
		if k := r.Record.Message.Key; k != nil {
			one := make([]outbox.LaneRow, 64)
			m, err := s.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: r.Lane, Keys: [][]byte{k}}}, one)
			if err != nil || m == 0 || !bytes.Equal(one[0].Record.Message.Key, k) {
				t.Errorf("rows of key %x: got %d, %v", k, m, err)
			}
		}
	}
	if _, err := s.SettleLanes(t.Context(), bury); err != nil {
		t.Fatal(err)
	}
	dead := make([]outbox.DeadLetter, 100)
	n, err = s.ListDead(t.Context(), outbox.DeadQuery{}, dead)
	if err != nil || n != len(want) {
		t.Fatalf("dead letters: got %d, %v, want %d", n, err, len(want))
	}
	for _, d := range dead[:n] {
		if d.Reason != "reason "+d.Record.TenantID {
			t.Errorf("reason: got %q", d.Reason)
		}
		compare("dead letter", d.Record)
	}
}

func TestSizes(t *testing.T) {
	onAll(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, &sqlstore.Options{MaxBytes: 4 << 20})
		// More than one statement by rows, then by bytes; the order of the
		// arguments is that of the positions across statements.
		many := make([]outbox.Record, 3000)
		for i := range many {
			many[i] = record("k")
			many[i].Message.Body = fmt.Append(nil, i)
		}
		big := make([]outbox.Record, 12)
		for i := range big {
			big[i] = record("big")
			// Above 2 MiB they are read in parts. No part is like another.
			body := make([]byte, 2<<20-1+i*i*8000)
			for j := range body {
				body[j] = byte(j>>12 + j + i)
			}
			big[i].Message.Body = body
		}
		enlist(t, s, db, append(many, big...)...)
		if n, err := s.PendingCount(t.Context(), time.Now()); err != nil || n != 3012 {
			t.Fatalf("pending: got %d, %v, want 3012", n, err)
		}
		all := outbox.Route{First: 1, Ordered: 16, Unordered: 8}
		rows := make([]outbox.LaneRow, 512)
		next, after := 0, int64(0)
		for lane := outbox.LaneOf(all, outbox.ID{}, []byte("k")); ; {
			n, err := s.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: lane, After: after}}, rows)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows[:n] {
				after = r.Pos
				if string(r.Record.Message.Key) != "k" {
					continue
				}
				if string(r.Record.Message.Body) != fmt.Sprint(next) {
					t.Fatalf("row %d of the key is message %s", next, r.Record.Message.Body)
				}
				next++
			}
			if n < len(rows) {
				break
			}
		}
		if next != len(many) {
			t.Errorf("rows of the key: got %d, want %d", next, len(many))
		}
		n, err := s.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: outbox.LaneOf(all, outbox.ID{}, []byte("big")), Keys: [][]byte{[]byte("big")}}}, rows)
		if err != nil || n != len(big) {
			t.Fatalf("big rows: got %d, %v", n, err)
		}
		for i, r := range rows[:n] {
			if !bytes.Equal(r.Record.Message.Body, big[i].Message.Body) {
				t.Errorf("big row %d has another body", i)
			}
		}
		tooBig := record("")
		tooBig.Message.Body = make([]byte, 4<<20)
		err = tryEnlist(t.Context(), s, db, tooBig)
		if !errors.Is(err, outbox.ErrTooLarge) || !strings.Contains(err.Error(), "limit 4194304") {
			t.Errorf("a message over the limit: got %v", err)
		}
	})
}

// TestDuplicateLeavesNoRow: a duplicate in the last of several statements takes
// back those of the first, of both tables and all routes, and nothing else.
func TestDuplicateLeavesNoRow(t *testing.T) {
	onAll(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, &sqlstore.Options{Routes: []outbox.Route{{Name: "default"}, {Name: "mail"}}})
		pending := record("pending")
		pending.Transport = "mail"
		earlier := record("same transaction")
		enlist(t, s, db, pending)
		tx, err := stores.Begin(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := tx.Enlist(t.Context(), s, earlier); err != nil {
			t.Fatal(err)
		}
		var recs []outbox.Record
		for i := range 1500 {
			r := record(fmt.Sprint(i % 7))
			if i%3 == 0 {
				r.Message.DeliverAt = time.Now().Add(time.Hour)
			}
			recs = append(recs, r)
		}
		again := pending
		again.Message.Key = []byte("another lane")
		err = tx.Enlist(t.Context(), s, append(recs, again)...)
		if !errors.Is(err, outbox.ErrDuplicateID) || !strings.Contains(err.Error(), pending.ID.String()) {
			t.Fatalf("got %v, want outbox.ErrDuplicateID naming %s", err, pending.ID)
		}
		// In another route the id is another message.
		again.Transport = "default"
		if err := tx.Enlist(t.Context(), s, again); err != nil {
			t.Errorf("the id in another route: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if n := number(t, db, e.sql(`SELECT count(*) FROM postrider_outbox`)); n != 3 {
			t.Errorf("hot rows: got %d, want 3", n)
		}
		if n := number(t, db, e.sql(`SELECT count(*) FROM postrider_deferred`)); n != 0 {
			t.Errorf("deferred rows: got %d, want 0", n)
		}
	})
}

// TestAttemptsOutOfRange: another program may have written them. A relay counts
// on from them and shifts by them: such a row must not reach it as a good one.
func TestAttemptsOutOfRange(t *testing.T) {
	onAll(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, nil)
		bad := []outbox.Record{record("k"), record(""), record("")}
		good := record("")
		for i, attempts := range []int{-1, -5, math.MaxInt32} {
			enlist(t, s, db, bad[i])
			exec(t, db, e.sql(fmt.Sprintf(`UPDATE postrider_outbox SET attempts = %d WHERE attempts = 0`, attempts)))
		}
		enlist(t, s, db, good)

		owner := outbox.NewID()
		g, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 100, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var reads []outbox.LaneRead
		for _, l := range g.Leases {
			reads = append(reads, outbox.LaneRead{Lane: l.Lane})
		}
		rows := make([]outbox.LaneRow, 16*len(reads))
		n, err := s.ReadLanes(t.Context(), reads, rows)
		if err != nil || n != len(bad)+1 {
			t.Fatalf("lane rows: got %d, %v, want %d", n, err, len(bad)+1)
		}
		bury := outbox.SettleRequest{Owner: owner}
		for _, r := range rows[:n] {
			if r.Record.ID == good.ID {
				if r.Err != nil {
					t.Errorf("the good row: %v", r.Err)
				}
				continue
			}
			if r.Err == nil || !strings.Contains(r.Err.Error(), "attempts") {
				t.Errorf("row with %d attempts: error %v, want one that names them", r.Record.Attempts, r.Err)
			}
			bury.Settlements = append(bury.Settlements, outbox.Settlement{
				Lane: r.Lane, Epoch: 1, Pos: r.Pos, ID: r.Record.ID, Outcome: outbox.SettleDead, Reason: "bad", Attempts: r.Record.Attempts,
			})
		}
		res, err := s.SettleLanes(t.Context(), bury)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range res {
			if r != outbox.Settled {
				t.Errorf("dead letter of %d attempts: got %v", bury.Settlements[i].Attempts, r)
			}
		}
	})
}

// TestLimits: what is as large as it gets, or as strange, comes back as it was.
func TestLimits(t *testing.T) {
	onAll(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, &sqlstore.Options{MaxBytes: 32 << 20})
		big, empty, headers := record(""), record(""), record("")
		big.Message.Body = make([]byte, 16<<20)
		for i := range big.Message.Body {
			big.Message.Body[i] = byte(i>>12 ^ i)
		}
		big.Message.Key = []byte{0, 'k', 0, 0, 0xff, 0}
		empty.Message.Body = []byte{}
		empty.Message.Key = []byte{0}
		empty.Message.Headers = []outbox.Header{{Name: "empty", Value: []byte{}}}
		headers.Message.Key = []byte{0, 0}
		for i := range 1000 {
			headers.Message.Headers = append(headers.Message.Headers, outbox.Header{Name: fmt.Sprint("h", i), Value: []byte{0xff, 0, 0xc3, byte(i), 0xfe}})
		}
		want := map[outbox.ID]outbox.Record{}
		for _, r := range []outbox.Record{big, empty, headers} {
			enlist(t, s, db, r)
			if err := r.Normalize(32 << 20); err != nil {
				t.Fatal(err)
			}
			want[r.ID] = r
		}
		g, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 100, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		reason := strings.Repeat("\xff\x00\xc3\xa9", 1<<18)
		for _, r := range want {
			lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, r.ID, r.Message.Key)
			read := []outbox.LaneRead{{Lane: lane, Keys: [][]byte{r.Message.Key}}}
			rows := make([]outbox.LaneRow, 32)
			n, err := s.ReadLanes(t.Context(), read, rows)
			if err != nil || n != 1 || rows[0].Err != nil {
				t.Fatalf("key %x: got %d rows, %v, %v, want 1", r.Message.Key, n, err, rows[0].Err)
			}
			pending := make([]outbox.Record, 4)
			if n, err := s.ReadPending(t.Context(), outbox.ReadRequest{Lane: lane, Now: time.Now()}, pending); err != nil || n == 0 {
				t.Errorf("pending in lane %d: got %d, %v", lane, n, err)
			}
			for _, got := range append(pending, rows[0].Record) {
				if got.Lane = 0; got.ID == r.ID && !reflect.DeepEqual(got, r) {
					t.Errorf("key %x came back with %d headers and %d bytes of body, or otherwise changed", r.Message.Key, len(got.Message.Headers), len(got.Message.Body))
				}
			}
			settle := outbox.SettleRequest{Owner: g.Leases[0].Owner, Settlements: []outbox.Settlement{{
				Lane: lane, Epoch: 1, Pos: rows[0].Pos, ID: r.ID, Outcome: outbox.SettleFailed, Attempt: true, Reason: reason,
			}}}
			if res, err := s.SettleLanes(t.Context(), settle); err != nil || res[0] != outbox.Settled {
				t.Fatalf("settle with a reason of %d bytes: got %v, %v", len(reason), res, err)
			}
			if _, err := s.ReadLanes(t.Context(), read, rows); err != nil || rows[0].Record.LastError != outbox.CleanReason(reason) {
				t.Errorf("last error: got %d bytes, %v, want %d", len(rows[0].Record.LastError), err, len(outbox.CleanReason(reason)))
			}
		}
	})
}

// TestManyAtOnce: 10,000 records in one call of Enlist and one of SettleLanes.
func TestManyAtOnce(t *testing.T) {
	onAll(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, nil)
		const many = 10_000
		recs := make([]outbox.Record, many)
		for i := range recs {
			recs[i] = record("k")
			recs[i].Message.Body = recs[i].Message.Body[:16]
		}
		enlist(t, s, db, recs...)
		g, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 100, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte("k"))
		settle := outbox.SettleRequest{Owner: g.Leases[0].Owner}
		rows := make([]outbox.LaneRow, 1024)
		for after := int64(0); ; after = rows[len(rows)-1].Pos {
			n, err := s.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: lane, After: after}}, rows)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows[:n] {
				st := outbox.Settlement{Lane: lane, Epoch: 1, Pos: r.Pos, ID: r.Record.ID, Outcome: outbox.SettleAccepted, Hint: r.Hint}
				switch len(settle.Settlements) % 10 {
				case 0, 1, 2:
					st.Outcome, st.Reason, st.Attempt = outbox.SettleFailed, "no", true
				case 3, 4, 5:
					st.Outcome, st.Reason, st.Attempt = outbox.SettleDead, "no", true
				}
				settle.Settlements = append(settle.Settlements, st)
			}
			if n < len(rows) {
				break
			}
		}
		if len(settle.Settlements) != many {
			t.Fatalf("read %d rows, want %d", len(settle.Settlements), many)
		}
		res, err := s.SettleLanes(t.Context(), settle)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range res {
			if got != outbox.Settled {
				t.Fatalf("settlement %d: got %d", i, got)
			}
		}
		for text, want := range map[string]int64{
			`SELECT count(*) FROM postrider_outbox WHERE attempts = 1`: 3 * many / 10,
			`SELECT count(*) FROM postrider_outbox`:                    3 * many / 10,
			`SELECT count(*) FROM postrider_dead`:                      3 * many / 10,
		} {
			if n := number(t, db, e.sql(text)); n != want {
				t.Errorf("%s: got %d, want %d", text, n, want)
			}
		}
	})
}
