package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/outbox"
)

// full is a record with every field set, to values that are easy to lose.
func (e *env) full() outbox.Record {
	r := e.rec("")
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	r.Type = "shop.order-placed.v2+json"
	r.TenantID = "Ünïcode-テナント-🐎"
	r.CreatedAt = e.now.Add(-time.Hour).Add(123456 * time.Microsecond)
	r.Message = outbox.Message{
		Destination: "orders.eu.'quoted\"; --",
		Headers: []outbox.Header{
			{Name: "X-Case-Kept", Value: every}, {Name: "x-case-kept", Value: []byte("second")},
			{Name: "X-Case-Kept", Value: []byte{0xff, 0x00, 0xfe}}, {Name: "Empty", Value: []byte{}},
			{Name: "ünï", Value: []byte("名")}, {Name: "A", Value: []byte("after Z in no order")},
		},
		ContentType: "application/json; charset=utf-8",
		Body:        slices.Concat(every, every),
		Key:         []byte{0x00, 0xff, 'k', 0x00, 0x80},
		DeliverAt:   e.now.Add(-time.Minute),
		Event: outbox.Event{
			Source: "https://shop.example/orders?q='x'", Subject: "order/42", Time: e.now.Add(-2 * time.Hour),
			DataSchema: "https://shop.example/schema#v2",
			Extensions: []outbox.Extension{{Name: "zone", Value: "eu"}, {Name: "alpha", Value: ""}, {Name: "n1", Value: "é, \"ü\""}},
		},
		Context: outbox.ContextFields{
			CorrelationID: "corr-1", CausationID: "cause-2",
			TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "vendor=a,other=b",
		},
	}
	return r
}

// same checks that the record comes back equal.
func (e *env) same(rec outbox.Record) {
	e.Helper()
	if d := diff(rec, e.lookup(rec, e.now), e.fix.nilBodyIsEmpty); d != "" {
		e.Fatalf("record %s came back changed: %s", rec.ID, d)
	}
}

var recordRules = []rule{
	{"S1_record_carries_every_field", always, func(e *env) {
		r := e.full()
		e.enlist(r)
		e.same(r)
	}},
	{"S2_what_was_enlisted_comes_back_equal", always, func(e *env) {
		recs := []outbox.Record{e.full(), e.rec(""), e.rec("key"), e.full()}
		recs[1].Type = "a"
		recs[2].Message.ContentType = "text/plain"
		recs[3].Message.Key = nil
		e.enlist(recs...)
		for _, r := range recs {
			e.same(r)
			e.same(r) // the first read has built nothing that the second one sees
		}
	}},
	{"S3_header_bytes_order_and_duplicates", always, func(e *env) {
		r := e.rec("")
		for i := range 40 {
			r.Message.Headers = append(r.Message.Headers, outbox.Header{Name: fmt.Sprintf("N%d", i%3), Value: bytes.Repeat([]byte{byte(i)}, i)})
		}
		e.enlist(r)
		e.same(r)
	}},
	{"S3_nil_and_empty_body", always, func(e *env) {
		none, empty := e.rec(""), e.rec("k")
		none.Message.Body, empty.Message.Body = nil, []byte{}
		e.enlist(none, empty)
		e.same(none)
		e.same(empty)
	}},
	{"S3_large_body", always, func(e *env) {
		r := e.rec("")
		r.Message.Body = bytes.Repeat([]byte("0123456789abcdef"), 48<<10) // 768 KiB
		e.enlist(r)
		e.same(r)
	}},
	{"S3_key_of_any_bytes", always, func(e *env) {
		var recs []outbox.Record
		for _, k := range [][]byte{{0}, {0xff}, []byte("ключ"), bytes.Repeat([]byte{0xfe}, outbox.MaxKey), []byte("k"), []byte("K"), []byte("k "), {'k', 0}} {
			r := e.rec("")
			r.Message.Key = k
			recs = append(recs, r)
		}
		e.enlist(recs...)
		for _, r := range recs {
			e.same(r)
		}
	}},
	{"S3_created_truncates_and_delivery_rounds_up", always, func(e *env) {
		r := e.rec("")
		r.CreatedAt = e.now.Add(-time.Hour + 999*time.Nanosecond).In(time.FixedZone("east", 5*3600+1800))
		r.Message.DeliverAt = e.now.Add(-time.Minute + time.Nanosecond)
		e.enlist(r)
		got := e.lookup(r, e.now)
		if want := e.now.Add(-time.Hour); !got.CreatedAt.Equal(want) {
			e.Errorf("CreatedAt: got %v, want %v", got.CreatedAt, want)
		}
		if want := e.now.Add(-time.Minute + time.Microsecond); !got.Message.DeliverAt.Equal(want) {
			e.Errorf("DeliverAt: got %v, want %v: it would be sent early", got.Message.DeliverAt, want)
		}
		e.same(r)
	}},
	{"S3_distant_times", always, func(e *env) {
		r := e.rec("")
		r.CreatedAt = time.Date(1971, 2, 3, 4, 5, 6, 7000, time.UTC)
		r.Message.Event.Time = time.Date(2399, 12, 31, 23, 59, 59, 999999000, time.UTC)
		e.enlist(r)
		e.same(r)
	}},
	{"S4_raw_envelope_keeps_the_metadata", always, func(e *env) {
		r := e.full()
		r.Message.Envelope = outbox.Raw
		bare := e.rec("")
		bare.Message.Envelope, bare.Message.Event = outbox.Raw, outbox.Event{}
		e.enlist(r, bare)
		e.same(r)
		e.same(bare)
	}},
	{"S5_native_callback_is_refused", always, func(e *env) {
		good, bad := e.rec("k"), e.rec("k")
		bad.Message.Native = func(any) error { return nil }
		tx := e.begin()
		if err := tx.enlist(e.ctx, good, bad); !errors.Is(err, outbox.ErrNotPersistable) {
			e.Errorf("Enlist: got %v, want ErrNotPersistable", err)
		}
		e.ok(tx.commit())
		if recs := e.pending(e.now); len(recs) != 0 {
			e.Fatalf("rows were written: %v", ids(recs))
		}
	}},
	{"S6_new_record_is_untried", always, func(e *env) {
		for _, key := range []string{"", "k"} {
			r := e.put(key)
			got := e.lookup(r, e.now)
			e.equal("attempts", got.Attempts, 0)
			e.equal("last error", got.LastError, "")
			if (got.Lane == outbox.Unordered) != (key == "") {
				e.Errorf("key %q reads back in lane %d", key, got.Lane)
			}
		}
	}},
	{"S6_store_owned_fields_are_refused", always, func(e *env) {
		for name, set := range map[string]func(*outbox.Record){
			"lane": func(r *outbox.Record) { r.Lane = 1 }, "attempts": func(r *outbox.Record) { r.Attempts = 1 },
			"error": func(r *outbox.Record) { r.LastError = "x" }, "zero id": func(r *outbox.Record) { r.ID = outbox.ID{} },
			"no type": func(r *outbox.Record) { r.Type = "" }, "no destination": func(r *outbox.Record) { r.Message.Destination = "" },
			"empty key": func(r *outbox.Record) { r.Message.Key = []byte{} }, "no transport": func(r *outbox.Record) { r.Transport = "" },
		} {
			r := e.rec("k")
			set(&r)
			tx := e.begin()
			if err := tx.enlist(e.ctx, r); !errors.Is(err, outbox.ErrInvalidArgument) {
				e.Errorf("%s: got %v, want ErrInvalidArgument", name, err)
			}
			e.ok(tx.rollback())
		}
		e.equal("rows", e.count(e.now), int64(0))
	}},
	{"S6_one_key_lies_in_one_lane", always, func(e *env) {
		recs := []outbox.Record{e.rec("a"), e.rec("a"), e.rec("b"), e.rec("")}
		e.enlist(recs...)
		a0, a1 := e.lookup(recs[0], e.now), e.lookup(recs[1], e.now)
		e.equal("lanes of one key", a0.Lane, a1.Lane)
		if r, ok := e.route(); ok {
			e.equal("lane of the key", a0.Lane, outbox.LaneOf(r, recs[0].ID, []byte("a")))
		}
	}},
	{"S7_correlation_and_trace_survive_a_retry", always, func(e *env) {
		r := e.full()
		e.enlist(r)
		e.fail(r.ID, time.Time{})
		got := e.lookup(r, e.now)
		e.equal("context", got.Message.Context, r.Message.Context)
		e.equal("attempts", got.Attempts, 1)
		e.same(r)
	}},
}

var enlistRules = []rule{
	{"E1_commit_publishes", always, func(e *env) {
		r := e.rec("k")
		tx := e.begin()
		e.ok(tx.enlist(e.ctx, r))
		e.equal("rows before the commit", e.count(e.now), int64(0))
		e.ok(tx.commit())
		e.same(r)
	}},
	{"E1_rollback_leaves_nothing", always, func(e *env) {
		tx := e.begin()
		e.ok(tx.enlist(e.ctx, e.rec("k"), e.rec(""), e.at("k", e.now.Add(time.Hour))))
		e.ok(tx.rollback())
		e.equal("rows", e.count(e.now.Add(2*time.Hour)), int64(0))
	}},
	{"E2_borrowed_memory_is_copied", always, func(e *env) {
		r := e.full()
		want := r
		want.Message = r.Message.Clone()
		tx := e.begin()
		e.ok(tx.enlist(e.ctx, r))
		scribble(r.Message.Body)
		scribble(r.Message.Key)
		for i := range r.Message.Headers {
			scribble(r.Message.Headers[i].Value)
			r.Message.Headers[i].Name = "changed"
		}
		r.Message.Event.Extensions[0].Value = "changed"
		e.ok(tx.commit())
		e.same(want)
	}},
	{"E3_every_call_is_in_the_commit", always, func(e *env) {
		tx := e.begin()
		var recs []outbox.Record
		for i := range 7 {
			r := e.rec([]string{"", "a", "b"}[i%3])
			recs = append(recs, r)
			e.ok(tx.enlist(e.ctx, r))
		}
		e.ok(tx.commit())
		e.equal("rows", ids(e.pending(e.now)), ids(recs))
	}},
	{"E4_opening_a_store_dispatches_nothing", always, func(e *env) {
		r := e.put("k")
		for _, s := range e.others(2) {
			n, err := s.PendingCount(e.ctx, e.now)
			e.ok(err)
			e.equal("rows", n, int64(1))
		}
		e.equal("attempts", e.lookup(r, e.now).Attempts, 0)
	}},
	{"E5_thousands_in_one_call", always, func(e *env) {
		recs := make([]outbox.Record, 3000)
		for i := range recs {
			recs[i] = e.rec([]string{"", "a", "b", "c"}[i%4])
			recs[i].Message.Body = fmt.Append(nil, i)
		}
		recs[17].Message = e.full().Message
		e.enlist(recs...)
		e.equal("count", e.count(e.now), int64(len(recs)))
		e.equal("ids", ids(e.pending(e.now)), ids(recs))
		e.same(recs[17])
		e.same(recs[2999])
	}},
	{"E5_arguments_are_rows_in_order", needLanes, func(e *env) {
		recs := make([]outbox.Record, 600)
		for i := range recs {
			recs[i] = e.rec("k")
		}
		slices.Reverse(recs) // order of the arguments, not of the ids
		e.enlist(recs...)
		rows := e.hot(outbox.LaneRead{Lane: e.laneOf("k")})
		e.equal("rows", len(rows), len(recs))
		for i, row := range rows {
			e.equal(fmt.Sprintf("row %d", i), row.Record.ID, recs[i].ID)
		}
	}},
	{"E5_no_records_is_no_error", always, func(e *env) {
		tx := e.begin()
		e.ok(tx.enlist(e.ctx))
		e.ok(tx.commit())
		e.equal("rows", e.count(e.now), int64(0))
	}},
	{"E6_refused_enlist_leaves_the_transaction_usable", always, func(e *env) {
		pending := e.put("k")
		for name, c := range map[string]struct {
			set  func(*outbox.Record)
			want error
		}{
			"invalid":   {func(r *outbox.Record) { r.Type = "" }, outbox.ErrInvalidArgument},
			"native":    {func(r *outbox.Record) { r.Message.Native = func(any) error { return nil } }, outbox.ErrNotPersistable},
			"route":     {func(r *outbox.Record) { r.Transport = "no-such-route" }, outbox.ErrUnknownRoute},
			"too large": {func(r *outbox.Record) { r.Message.Body = make([]byte, outbox.DefaultSize+1) }, outbox.ErrTooLarge},
			"duplicate": {func(r *outbox.Record) { r.ID = pending.ID }, outbox.ErrDuplicateID},
		} {
			bad, lost, kept := e.rec("k"), e.rec("k"), e.rec("k")
			c.set(&bad)
			tx := e.begin()
			if err := tx.enlist(e.ctx, lost, bad); !errors.Is(err, c.want) {
				e.Errorf("%s: got %v, want %v", name, err, c.want)
			}
			if err := tx.enlist(e.ctx, kept); err != nil {
				e.Errorf("%s: the transaction is not usable: %v", name, err)
			}
			e.ok(tx.commit())
			if e.eligible(lost, e.now) {
				e.Errorf("%s: a row of the refused call remains", name)
			}
			e.same(kept)
		}
	}},
	{"E6_cancelled_enlist_can_be_rolled_back", always, func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx)
		cancel()
		tx := e.begin()
		if err := tx.enlist(ctx, e.rec("k")); err == nil {
			e.Errorf("Enlist under a cancelled context: no error")
		}
		_ = tx.rollback() // some drivers have rolled back already
		e.equal("rows", e.count(e.now), int64(0))
		e.put("k")
	}},
	{"E8_pending_id_is_a_duplicate", always, func(e *env) {
		for name, first := range map[string]outbox.Record{
			"ordered": e.rec("k"), "unordered": e.rec(""), "scheduled": e.at("k", e.now.Add(time.Hour)), "scheduled unordered": e.at("", e.now.Add(time.Hour)),
		} {
			e.enlist(first)
			again := first
			again.Message.DeliverAt = time.Time{}
			other := e.rec("k")
			tx := e.begin()
			if err := tx.enlist(e.ctx, other, again); !errors.Is(err, outbox.ErrDuplicateID) {
				e.Errorf("%s: got %v, want ErrDuplicateID", name, err)
			}
			e.ok(tx.enlist(e.ctx, e.rec("after")))
			e.ok(tx.commit())
			if e.eligible(other, e.now) {
				e.Errorf("%s: a row of the refused call remains", name)
			}
		}
	}},
	{"E8_duplicate_in_another_lane", always, func(e *env) {
		first := e.put("k")
		for _, key := range []string{"", "other", "another"} {
			again := e.rec(key)
			again.ID = first.ID
			tx := e.begin()
			if err := tx.enlist(e.ctx, again); !errors.Is(err, outbox.ErrDuplicateID) {
				e.Errorf("key %q: got %v, want ErrDuplicateID", key, err)
			}
			e.ok(tx.rollback())
		}
	}},
	{"E8_twice_in_one_call", always, func(e *env) {
		a, b := e.rec("k"), e.rec("")
		again := e.rec("x")
		again.ID = b.ID
		tx := e.begin()
		if err := tx.enlist(e.ctx, a, b, again); !errors.Is(err, outbox.ErrDuplicateID) {
			e.Errorf("got %v, want ErrDuplicateID", err)
		}
		e.ok(tx.enlist(e.ctx, a))
		e.ok(tx.commit())
		e.equal("rows", ids(e.pending(e.now)), ids([]outbox.Record{a}))
	}},
	{"E8_twice_in_one_transaction", always, func(e *env) {
		a, b := e.rec("k"), e.rec("k")
		tx := e.begin()
		e.ok(tx.enlist(e.ctx, a))
		if err := tx.enlist(e.ctx, b, a); !errors.Is(err, outbox.ErrDuplicateID) {
			e.Errorf("got %v, want ErrDuplicateID", err)
		}
		e.ok(tx.commit())
		e.equal("rows", ids(e.pending(e.now)), ids([]outbox.Record{a}))
	}},
	{"E8_id_is_free_after_rollback_and_completion", always, func(e *env) {
		r := e.rec("k")
		tx := e.begin()
		e.ok(tx.enlist(e.ctx, r))
		e.ok(tx.rollback())
		e.enlist(r)
		ok, err := e.store.Complete(e.ctx, e.claim(r.ID, e.now, e.now.Add(time.Minute)), e.now)
		e.yes("Complete", ok, err)
		e.enlist(r)
		e.same(r)
	}},
	{"E8_concurrent_duplicates_exactly_one_wins", always, func(e *env) {
		for _, key := range []string{"k", ""} {
			r := e.rec(key)
			var won atomic.Int32
			fns := make([]func(), 6)
			for i := range fns {
				fns[i] = func() {
					tx, err := e.fix.begin(e.ctx)
					if err != nil {
						e.Errorf("begin: %v", err)
						return
					}
					switch err := tx.enlist(e.ctx, r); {
					case err == nil:
						if err := tx.commit(); err != nil {
							e.Errorf("commit: %v", err)
						}
						won.Add(1)
						return
					case e.fix.lost != nil && e.fix.lost(err):
						tx.rollback() // whatever it says of a transaction that has ended
						return
					case !errors.Is(err, outbox.ErrDuplicateID):
						e.Errorf("got %v, want ErrDuplicateID", err)
					}
					if err := tx.rollback(); err != nil {
						e.Errorf("rollback: %v", err)
					}
				}
			}
			together(fns...)
			e.equal("winners", won.Load(), int32(1))
			e.same(r)
		}
	}},
	{"E9_no_transaction_is_refused", always, func(e *env) {
		if err := e.fix.notTx(e.ctx, e.rec("k")); err != nil {
			e.Error(err)
		}
		e.equal("rows", e.count(e.now), int64(0))
	}},
	{"E9_ended_transaction_is_refused", always, func(e *env) {
		for _, end := range []string{"commit", "rollback"} {
			tx := e.begin()
			if end == "commit" {
				e.ok(tx.commit())
			} else {
				e.ok(tx.rollback())
			}
			if err := tx.enlist(e.ctx, e.rec("k")); !errors.Is(err, outbox.ErrTxDone) {
				e.Errorf("Enlist after %s: got %v, want ErrTxDone", end, err)
			}
		}
		e.equal("rows", e.count(e.now), int64(0))
	}},
}

func scribble(b []byte) {
	for i := range b {
		b[i] = '#'
	}
}
