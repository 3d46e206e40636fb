package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/outbox"
)

var readRules = []rule{
	{"R1_fills_dst_and_returns_the_count", always, func(e *env) {
		for range 3 {
			e.put("")
		}
		dst := make([]outbox.Record, 5)
		dst[3].Type, dst[4].Type = "untouched", "untouched"
		n, err := e.store.ReadPending(e.ctx, outbox.ReadRequest{Now: e.now}, dst)
		e.ok(err)
		e.equal("rows", n, 3)
		e.equal("slots behind the rows", dst[3].Type+" "+dst[4].Type, "untouched untouched")
		n, err = e.store.ReadPending(e.ctx, outbox.ReadRequest{Now: e.now}, dst[:2])
		e.ok(err)
		e.equal("rows in a short slice", n, 2)
		e.equal("slot behind the short slice", dst[2].Type != "", true)
		for _, none := range [][]outbox.Record{nil, {}} {
			n, err = e.store.ReadPending(e.ctx, outbox.ReadRequest{Now: e.now}, none)
			e.ok(err)
			e.equal("rows in an empty slice", n, 0)
		}
	}},
	{"R2_one_lane_per_call", always, func(e *env) {
		recs := []outbox.Record{e.rec(""), e.rec(""), e.rec("a"), e.rec("b"), e.rec("c"), e.rec("a")}
		e.enlist(recs...)
		e.equal("unordered rows", ids(e.read(outbox.Unordered, e.now)), ids(recs[:2]))
		seen := map[outbox.ID]int{}
		for _, lane := range e.orderedLanes() {
			for _, r := range e.read(lane, e.now) {
				e.equal("lane of the row", r.Lane, lane)
				seen[r.ID]++
			}
		}
		for _, r := range recs[2:] {
			e.equal("lanes that return "+r.ID.String(), seen[r.ID], 1)
		}
		e.equal("ordered rows", len(seen), 4)
	}},
	{"R2_negative_lane_is_invalid", always, func(e *env) {
		for _, dst := range [][]outbox.Record{make([]outbox.Record, 1)} {
			if n, err := e.store.ReadPending(e.ctx, outbox.ReadRequest{Lane: -1, Now: e.now}, dst); n != 0 || !errors.Is(err, outbox.ErrInvalidArgument) {
				e.Errorf("got %d, %v; want ErrInvalidArgument", n, err)
			}
		}
		e.equal("rows of a lane that does not exist", len(e.read(1<<30, e.now)), 0)
	}},
	{"R3_ascending_id_order", always, func(e *env) {
		for _, key := range []string{"", "k"} {
			recs := make([]outbox.Record, 20)
			for i := range recs {
				recs[i] = e.rec(key)
			}
			mixed := slices.Clone(recs)
			for i := range mixed {
				j := (i * 7) % len(mixed)
				mixed[i], mixed[j] = mixed[j], mixed[i]
			}
			e.enlist(mixed...)
			got := e.read(e.lookup(recs[0], e.now).Lane, e.now)
			for i := 1; i < len(got); i++ {
				if compareID(got[i-1].ID, got[i].ID) >= 0 {
					e.Fatalf("key %q: row %d %s is not above %s", key, i, got[i].ID, got[i-1].ID)
				}
			}
			e.equal("rows", ids(got), ids(recs))
		}
	}},
	{"R3_after_is_exclusive", always, func(e *env) {
		recs := []outbox.Record{e.rec(""), e.rec(""), e.rec("")}
		e.enlist(recs...)
		dst := make([]outbox.Record, 3)
		n, err := e.store.ReadPending(e.ctx, outbox.ReadRequest{Now: e.now, After: recs[1].ID}, dst)
		e.ok(err)
		e.equal("rows", ids(dst[:n]), ids(recs[2:]))
		n, err = e.store.ReadPending(e.ctx, outbox.ReadRequest{Now: e.now, After: recs[2].ID}, dst)
		e.ok(err)
		e.equal("rows after the last", n, 0)
	}},
	{"R3_a_later_sweep_sees_what_was_behind_the_cursor", always, func(e *env) {
		early, late := e.rec(""), e.rec("")
		e.enlist(late)
		e.equal("first sweep", ids(e.read(0, e.now)), ids([]outbox.Record{late}))
		e.enlist(early) // its id is below the first sweep's end
		e.equal("second sweep", ids(e.read(0, e.now)), ids([]outbox.Record{early, late}))
	}},
	{"R4_future_schedule_is_not_eligible", always, func(e *env) {
		for _, key := range []string{"", "k"} {
			due := e.now.Add(time.Minute)
			r := e.at(key, due)
			e.enlist(r)
			e.equal("eligible before", e.eligible(r, due.Add(-time.Microsecond)), false)
			e.equal("eligible then", e.eligible(r, due), true)
			e.equal("eligible after", e.eligible(r, due.Add(time.Hour)), true)
		}
	}},
	{"R4_retry_time_is_not_eligible", always, func(e *env) {
		for _, key := range []string{"", "k"} {
			r := e.put(key)
			retry := e.now.Add(time.Minute)
			e.fail(r.ID, retry)
			e.equal("eligible before", e.eligible(r, retry.Add(-time.Microsecond)), false)
			e.equal("eligible then", e.eligible(r, retry), true)
		}
	}},
	{"R4_schedule_and_retry_are_two_things", always, func(e *env) {
		for _, key := range []string{"", "k"} {
			r := e.at(key, e.now.Add(-time.Minute))
			e.enlist(r)
			e.fail(r.ID, e.now.Add(time.Minute))
			e.equal("eligible before the retry", e.eligible(r, e.now), false)
			got := e.lookup(r, e.now.Add(time.Minute))
			if !got.Message.DeliverAt.Equal(r.Message.DeliverAt) {
				e.Errorf("DeliverAt changed from %v to %v", r.Message.DeliverAt, got.Message.DeliverAt)
			}
		}
	}},
	{"R4_live_claim_is_not_eligible", always, func(e *env) {
		for _, key := range []string{"", "k"} {
			r := e.put(key)
			e.claim(r.ID, e.now, e.now.Add(time.Minute))
			e.equal("eligible", e.eligible(r, e.now.Add(time.Minute-time.Microsecond)), false)
		}
	}},
	{"R4_expired_claim_is_eligible", always, func(e *env) {
		for _, key := range []string{"", "k"} {
			r := e.put(key)
			e.claim(r.ID, e.now, e.now.Add(time.Minute))
			e.equal("eligible at the expiry", e.eligible(r, e.now.Add(time.Minute)), true)
			e.claim(r.ID, e.now.Add(time.Minute), e.now.Add(2*time.Minute))
		}
	}},
	{"R4_each_row_is_judged_alone", always, func(e *env) {
		first, second, third := e.rec("k"), e.at("k", e.now.Add(time.Hour)), e.rec("k")
		e.enlist(first, second, third)
		e.fail(first.ID, e.now.Add(time.Hour))
		e.equal("eligible", ids(e.pending(e.now)), ids([]outbox.Record{third}))
		e.claim(third.ID, e.now, e.now.Add(time.Minute))
	}},
	{"R5_instants_compare_in_UTC", always, func(e *env) {
		due := e.now.Add(time.Minute)
		r := e.at("k", due.In(time.FixedZone("far east", 14*3600)))
		e.enlist(r)
		stores := []outbox.Store{e.store}
		if e.fix.open != nil {
			stores = append(stores, e.fix.open(e.TB, "Pacific/Kiritimati"), e.fix.open(e.TB, "America/St_Johns"))
		}
		for _, s := range stores {
			for _, zone := range []*time.Location{time.UTC, time.FixedZone("west", -11*3600), time.FixedZone("east", 13*3600+2700)} {
				for now, want := range map[time.Time]int64{due.Add(-time.Microsecond): 0, due: 1} {
					n, err := s.PendingCount(e.ctx, now.In(zone))
					e.ok(err)
					e.equal("count at "+now.In(zone).String(), n, want)
				}
			}
		}
		for i, s := range stores {
			now := due.Add(time.Duration(i) * time.Hour).In(time.FixedZone("west", -9*3600))
			c := outbox.Claim{ID: r.ID, Token: outbox.NewToken()}
			ok, err := s.TryClaim(e.ctx, c, now, now.Add(time.Hour).In(time.FixedZone("east", 9*3600)))
			e.yes("TryClaim", ok, err)
			e.equal("eligible before the expiry", e.eligible(r, now.Add(time.Hour-time.Microsecond)), false)
			e.equal("eligible at the expiry", e.eligible(r, now.Add(time.Hour)), true)
		}
		e.same2(r, due.Add(24*time.Hour))
	}},
	{"R5_server_clock_moves", needClock, func(e *env) {
		clock := e.store.(outbox.ServerClock)
		a, err := clock.ServerTime(e.ctx)
		e.ok(err)
		e.fix.sleep(20 * time.Millisecond)
		b, err := clock.ServerTime(e.ctx)
		e.ok(err)
		if d := b.Sub(a); d < 10*time.Millisecond || d > time.Minute {
			e.Errorf("the server's clock went from %v to %v in 20 ms", a, b)
		}
	}},
	{"R6_reads_do_not_claim", always, func(e *env) {
		r := e.put("k")
		e.same(r)
		e.same(r)
		e.equal("count", e.count(e.now), int64(1))
		e.claim(r.ID, e.now, e.now.Add(time.Minute))
	}},
	{"R7_memory_of_a_read", always, func(e *env) {
		r := e.full()
		r.Message.Key = nil
		e.enlist(r)
		one := make([]outbox.Record, 1)
		n, err := e.store.ReadPending(e.ctx, outbox.ReadRequest{Now: e.now}, one)
		e.ok(err)
		e.equal("rows", n, 1)
		if c, ok := e.store.(outbox.Concurrent); ok && c.ConcurrentUse() {
			e.put("") // owned memory outlives any further use of the store
			e.same(r)
		}
		if d := diff(r, one[0], e.fix.nilBodyIsEmpty); d != "" {
			e.Fatalf("the record changed after the read: %s", d)
		}
		scribble(one[0].Message.Body)
		for _, h := range one[0].Message.Headers {
			scribble(h.Value)
		}
		e.same(r) // the caller owns the slots
	}},
	{"R8_undecodable_row_does_not_hide_the_others", always, func(e *env) {
		recs := []outbox.Record{e.rec(""), e.rec(""), e.rec(""), e.rec("")}
		e.enlist(recs...)
		e.ok(e.fix.corrupt(e.ctx, recs[0].ID))
		e.ok(e.fix.corrupt(e.ctx, recs[2].ID))
		want := ids([]outbox.Record{recs[1], recs[3]})
		dst := make([]outbox.Record, 10)
		n, err := e.store.ReadPending(e.ctx, outbox.ReadRequest{Now: e.now}, dst)
		var bad *outbox.RowError
		if !errors.As(err, &bad) {
			e.Fatalf("got %v, want a *RowError", err)
		}
		e.equal("good rows", ids(dst[:n]), want)
		e.equal("bad rows", bad.IDs, ids([]outbox.Record{recs[0], recs[2]}))
		e.equal("reasons", len(bad.Errs), 2)
		// A small page may hold bad rows only; a reader goes on behind them.
		var good []outbox.Record
		req := outbox.ReadRequest{Now: e.now}
		for range 10 {
			n, err := e.store.ReadPending(e.ctx, req, dst[:1])
			bad = nil
			if err != nil && !errors.As(err, &bad) {
				e.Fatalf("ReadPending: %v", err)
			}
			if n == 0 && bad == nil {
				break
			}
			for _, r := range dst[:n] {
				good = append(good, r)
				req.After = r.ID
			}
			if bad != nil && compareID(bad.IDs[len(bad.IDs)-1], req.After) > 0 {
				req.After = bad.IDs[len(bad.IDs)-1]
			}
		}
		e.equal("good rows by pages of one", ids(good), want)
		e.equal("count", e.count(e.now), int64(4)) // counted: nobody has decided about them
	}},
}

// same2 is same at another instant.
func (e *env) same2(rec outbox.Record, now time.Time) {
	e.Helper()
	if d := diff(rec, e.lookup(rec, now), e.fix.nilBodyIsEmpty); d != "" {
		e.Fatalf("record %s came back changed: %s", rec.ID, d)
	}
}

var claimRules = []rule{
	{"C1_claim_stores_token_and_expiry", always, func(e *env) {
		r := e.put("k")
		c := e.claim(r.ID, e.now, e.now.Add(time.Minute))
		e.equal("eligible", e.eligible(r, e.now), false)
		ok, err := e.store.Complete(e.ctx, outbox.Claim{ID: r.ID, Token: outbox.NewToken()}, e.now)
		e.no("Complete with another token", ok, err)
		ok, err = e.store.Complete(e.ctx, c, e.now.Add(time.Minute-time.Microsecond))
		e.yes("Complete just before the expiry", ok, err)
	}},
	{"C1_ineligible_rows_are_not_claimed", always, func(e *env) {
		scheduled, waiting, taken := e.at("k", e.now.Add(time.Minute)), e.rec(""), e.rec("k")
		e.enlist(scheduled, waiting, taken)
		e.fail(waiting.ID, e.now.Add(time.Minute))
		holder := e.claim(taken.ID, e.now, e.now.Add(30*time.Second))
		for name, id := range map[string]outbox.ID{"absent": outbox.NewID(), "scheduled": scheduled.ID, "waiting": waiting.ID, "taken": taken.ID} {
			ok, err := e.store.TryClaim(e.ctx, outbox.Claim{ID: id, Token: outbox.NewToken()}, e.now, e.now.Add(time.Hour))
			e.no("TryClaim of a row that is "+name, ok, err)
		}
		ok, err := e.store.TryClaim(e.ctx, holder, e.now, e.now.Add(time.Hour))
		e.no("TryClaim again with the same token", ok, err)
		e.equal("rows a minute later", e.count(e.now.Add(time.Minute)), int64(3))
	}},
	{"C2_concurrent_claimers_exactly_one", always, func(e *env) {
		for _, key := range []string{"k", ""} {
			r := e.put(key)
			stores := e.others(12)
			won := make([]bool, len(stores))
			claims := make([]outbox.Claim, len(stores))
			fns := make([]func(), len(stores))
			for i, s := range stores {
				claims[i] = outbox.Claim{ID: r.ID, Token: outbox.NewToken()}
				fns[i] = func() {
					var err error
					if won[i], err = s.TryClaim(e.ctx, claims[i], e.now, e.now.Add(time.Minute)); err != nil {
						e.Errorf("TryClaim: %v", err)
					}
				}
			}
			together(fns...)
			winners := 0
			for i := range won {
				ok, err := e.store.RenewClaim(e.ctx, claims[i], e.now, e.now.Add(time.Minute))
				e.ok(err)
				if won[i] {
					winners++
				}
				e.equal("the answer of TryClaim against the row", won[i], ok)
			}
			e.equal("winners", winners, 1)
		}
	}},
	{"C3_renew_extends", always, func(e *env) {
		r := e.put("k")
		c := e.claim(r.ID, e.now, e.now.Add(time.Minute))
		ok, err := e.store.RenewClaim(e.ctx, c, e.now.Add(30*time.Second), e.now.Add(2*time.Minute))
		e.yes("RenewClaim", ok, err)
		e.equal("eligible at the first expiry", e.eligible(r, e.now.Add(time.Minute)), false)
		e.equal("eligible at the second expiry", e.eligible(r, e.now.Add(2*time.Minute)), true)
	}},
	{"C3_renew_never_shortens", always, func(e *env) {
		r := e.put("")
		c := e.claim(r.ID, e.now, e.now.Add(time.Hour))
		ok, err := e.store.RenewClaim(e.ctx, c, e.now, e.now.Add(time.Minute))
		e.yes("RenewClaim for less", ok, err)
		e.equal("eligible at the shorter expiry", e.eligible(r, e.now.Add(time.Minute)), false)
		ok, err = e.store.Complete(e.ctx, c, e.now.Add(59*time.Minute))
		e.yes("Complete", ok, err)
	}},
	{"C4_complete_deletes", always, func(e *env) {
		for _, r := range []outbox.Record{e.rec("k"), e.rec(""), e.at("k", e.now.Add(-time.Minute)), e.at("", e.now)} {
			e.enlist(r)
			c := e.claim(r.ID, e.now, e.now.Add(time.Minute))
			ok, err := e.store.Complete(e.ctx, c, e.now)
			e.yes("Complete", ok, err)
			ok, err = e.store.Complete(e.ctx, c, e.now)
			e.no("Complete again", ok, err)
			e.equal("rows", e.count(e.now.Add(time.Hour)), int64(0))
		}
	}},
	{"C4_only_the_completed_rows_go", always, func(e *env) {
		var done, left []outbox.Record
		for i := range 20 {
			r := e.rec([]string{"", "k"}[i%2])
			e.enlist(r)
			if i%5 == 0 {
				done = append(done, r)
			} else {
				left = append(left, r)
			}
		}
		for _, r := range done {
			ok, err := e.store.Complete(e.ctx, e.claim(r.ID, e.now, e.now.Add(time.Minute)), e.now)
			e.yes("Complete", ok, err)
		}
		e.equal("rows", ids(e.pending(e.now)), ids(left))
	}},
	{"C5_failure_adds_one_attempt", always, func(e *env) {
		for _, r := range []outbox.Record{e.rec("k"), e.rec(""), e.at("k", e.now.Add(-time.Minute)), e.at("", e.now.Add(-time.Minute))} {
			e.enlist(r)
			now := e.now
			for i := 1; i <= 3; i++ {
				c := e.claim(r.ID, now, now.Add(time.Minute))
				reason := strings.Repeat("x", i)
				ok, err := e.store.RecordFailure(e.ctx, c, now, outbox.Failure{Reason: reason, RetryAt: now.Add(time.Second)})
				e.yes("RecordFailure", ok, err)
				ok, err = e.store.RecordFailure(e.ctx, c, now, outbox.Failure{Reason: "again"})
				e.no("RecordFailure with the released token", ok, err)
				ok, err = e.store.Complete(e.ctx, c, now)
				e.no("Complete with the released token", ok, err)
				e.equal("eligible before the retry", e.eligible(r, now), false)
				now = now.Add(time.Second)
				got := e.lookup(r, now)
				e.equal("attempts", got.Attempts, i)
				e.equal("last error", got.LastError, reason)
			}
			e.same2(r, now)
		}
	}},
	{"C5_zero_retry_is_at_once", always, func(e *env) {
		for _, key := range []string{"k", ""} {
			r := e.put(key)
			e.fail(r.ID, time.Time{})
			e.equal("attempts", e.lookup(r, e.now).Attempts, 1)
			e.fail(r.ID, e.now.Add(time.Hour))
			e.fail2(r.ID, e.now.Add(time.Hour), time.Time{})
			e.equal("eligible earlier than the old retry time", e.eligible(r, e.now), true)
		}
	}},
	{"C5_reason_is_stored_clean_and_cut", always, func(e *env) {
		for _, reason := range []string{"a\x00b\xff\xfec", strings.Repeat("é🐎", 3000), "line\nbreak\ttab 'quote'"} {
			r := e.put("")
			c := e.claim(r.ID, e.now, e.now.Add(time.Minute))
			ok, err := e.store.RecordFailure(e.ctx, c, e.now, outbox.Failure{Reason: reason})
			e.yes("RecordFailure", ok, err)
			got := e.lookup(r, e.now).LastError
			if got != outbox.CleanReason(reason) || len(got) > outbox.MaxReason || !utf8.ValidString(got) {
				e.Errorf("last error: got %d bytes %.40q, want %.40q", len(got), got, outbox.CleanReason(reason))
			}
		}
	}},
	{"C5_concurrent_outcomes_exactly_one", always, func(e *env) {
		for range 5 {
			r := e.put("k")
			c := e.claim(r.ID, e.now, e.now.Add(time.Minute))
			var won atomic.Int32
			fns := []func(){}
			for i, s := range e.others(6) {
				fns = append(fns, func() {
					var ok bool
					var err error
					if i%2 == 0 {
						ok, err = s.Complete(e.ctx, c, e.now)
					} else {
						ok, err = s.RecordFailure(e.ctx, c, e.now, outbox.Failure{Reason: "refused"})
					}
					if err != nil {
						e.Errorf("outcome: %v", err)
					}
					if ok {
						won.Add(1)
					}
				})
			}
			together(fns...)
			e.equal("outcomes that were written", won.Load(), int32(1))
			if got, ok := e.find(r, e.now); ok {
				e.equal("attempts", got.Attempts, 1)
			}
		}
	}},
	{"C6_outcomes_need_a_live_claim", always, func(e *env) {
		for _, key := range []string{"k", ""} {
			r := e.put(key)
			c := e.claim(r.ID, e.now, e.now.Add(time.Minute))
			end := e.now.Add(time.Minute) // a claim that ends now has ended
			e.outcomesRefused("expired claim", c, end)
			e.outcomesRefused("other token", outbox.Claim{ID: r.ID, Token: outbox.NewToken()}, e.now)
			e.outcomesRefused("absent row", outbox.Claim{ID: outbox.NewID(), Token: c.Token}, e.now)
			e.equal("attempts", e.lookup(r, end).Attempts, 0)
			ok, err := e.store.Complete(e.ctx, c, e.now)
			e.yes("Complete while it lives", ok, err)
		}
	}},
	{"C6_unclaimed_row_has_no_outcome", always, func(e *env) {
		r := e.put("k")
		e.outcomesRefused("never claimed", outbox.Claim{ID: r.ID, Token: outbox.NewToken()}, e.now)
		e.equal("attempts", e.lookup(r, e.now).Attempts, 0)
	}},
	{"C6_older_token_cannot_touch_a_reclaimed_row", always, func(e *env) {
		for _, key := range []string{"k", ""} {
			r := e.put(key)
			old := e.claim(r.ID, e.now, e.now.Add(time.Minute))
			later := e.now.Add(2 * time.Minute)
			newer := e.claim(r.ID, later, later.Add(time.Minute))
			e.outcomesRefused("older token", old, later)
			e.outcomesRefused("older token at its own time", old, e.now)
			ok, err := e.store.RecordFailure(e.ctx, newer, later, outbox.Failure{Reason: "refused"})
			e.yes("RecordFailure with the newer token", ok, err)
			e.equal("attempts", e.lookup(r, later).Attempts, 1)
		}
	}},
	{"C7_invalid_arguments_change_nothing", always, func(e *env) {
		r := e.put("k")
		good := outbox.Claim{ID: r.ID, Token: outbox.NewToken()}
		in := e.now.Add(time.Minute)
		check := func(what string, ok bool, err error) {
			e.Helper()
			if ok || !errors.Is(err, outbox.ErrInvalidArgument) {
				e.Errorf("%s: got %v, %v; want ErrInvalidArgument", what, ok, err)
			}
		}
		ok, err := e.store.TryClaim(e.ctx, good, e.now, e.now)
		check("TryClaim with an expiry of now", ok, err)
		ok, err = e.store.TryClaim(e.ctx, good, e.now, e.now.Add(-time.Second))
		check("TryClaim with an expiry in the past", ok, err)
		ok, err = e.store.TryClaim(e.ctx, good, e.now, in)
		e.yes("TryClaim", ok, err)
		ok, err = e.store.RenewClaim(e.ctx, good, e.now, e.now)
		check("RenewClaim with an expiry of now", ok, err)
		for name, c := range map[string]outbox.Claim{"zero id": {Token: good.Token}, "zero token": {ID: r.ID}} {
			ok, err = e.store.TryClaim(e.ctx, c, e.now, in)
			check("TryClaim with a "+name, ok, err)
			ok, err = e.store.RenewClaim(e.ctx, c, e.now, in)
			check("RenewClaim with a "+name, ok, err)
			ok, err = e.store.Complete(e.ctx, c, e.now)
			check("Complete with a "+name, ok, err)
			ok, err = e.store.RecordFailure(e.ctx, c, e.now, outbox.Failure{Reason: "r"})
			check("RecordFailure with a "+name, ok, err)
		}
		ok, err = e.store.RecordFailure(e.ctx, good, e.now, outbox.Failure{RetryAt: in})
		check("RecordFailure without a reason", ok, err)
		ok, err = e.store.Complete(e.ctx, good, e.now)
		e.yes("Complete", ok, err)
	}},
	{"C8_cancellation_is_observed", always, func(e *env) {
		r, taken := e.put("k"), e.put("")
		c := e.claim(taken.ID, e.now, e.now.Add(time.Minute))
		ctx, cancel := context.WithCancel(e.ctx)
		cancel()
		in := e.now.Add(time.Minute)
		calls := map[string]func() error{
			"ReadPending": func() error {
				_, err := e.store.ReadPending(ctx, outbox.ReadRequest{Now: e.now}, make([]outbox.Record, 1))
				return err
			},
			"TryClaim": func() error {
				_, err := e.store.TryClaim(ctx, outbox.Claim{ID: r.ID, Token: outbox.NewToken()}, e.now, in)
				return err
			},
			"RenewClaim": func() error { _, err := e.store.RenewClaim(ctx, c, e.now, in); return err },
			"Complete":   func() error { _, err := e.store.Complete(ctx, c, e.now); return err },
			"RecordFailure": func() error {
				_, err := e.store.RecordFailure(ctx, c, e.now, outbox.Failure{Reason: "r"})
				return err
			},
			"PendingCount": func() error { _, err := e.store.PendingCount(ctx, e.now); return err },
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, context.Canceled) {
				e.Errorf("%s: got %v, want context.Canceled", name, err)
			}
		}
		e.equal("attempts", e.lookup(r, e.now).Attempts, 0)
		ok, err := e.store.Complete(e.ctx, c, e.now)
		e.yes("Complete afterwards", ok, err)
	}},
	{"C8_an_answer_is_durable_for_other_instances", always, func(e *env) {
		other := e.others(1)[0]
		r := e.put("k")
		c := e.claim(r.ID, e.now, e.now.Add(time.Minute))
		n, err := other.PendingCount(e.ctx, e.now)
		e.ok(err)
		e.equal("count under the claim", n, int64(0))
		ok, err := other.RecordFailure(e.ctx, c, e.now, outbox.Failure{Reason: "refused"})
		e.yes("RecordFailure by another instance", ok, err)
		e.equal("attempts", e.lookup(r, e.now).Attempts, 1)
	}},
	{"C9_an_unanswered_row_is_offered_again", always, func(e *env) {
		// The send may have happened; without an outcome the row stays, whole.
		r := e.put("k")
		now := e.now
		for range 3 {
			e.claim(r.ID, now, now.Add(time.Second))
			now = now.Add(time.Second)
		}
		e.same2(r, now)
		e.equal("attempts", e.lookup(r, now).Attempts, 0)
	}},
	{"C10_expired_claims_return_by_themselves", always, func(e *env) {
		recs := []outbox.Record{e.rec("a"), e.rec("b"), e.rec("")}
		e.enlist(recs...)
		for _, r := range recs {
			e.claim(r.ID, e.now, e.now.Add(time.Second))
		}
		e.equal("count", e.count(e.now), int64(0))
		other := e.others(1)[0] // the process that claimed has failed
		later := e.now.Add(time.Second)
		n, err := other.PendingCount(e.ctx, later)
		e.ok(err)
		e.equal("count after the expiry", n, int64(3))
		for _, r := range recs {
			ok, err := other.TryClaim(e.ctx, outbox.Claim{ID: r.ID, Token: outbox.NewToken()}, later, later.Add(time.Second))
			e.yes("TryClaim", ok, err)
		}
	}},
	{"C10_release_gives_a_claim_back_without_an_attempt", needRelease, func(e *env) {
		rel := e.store.(outbox.Releaser)
		for _, key := range []string{"k", ""} {
			r := e.put(key)
			c := e.claim(r.ID, e.now, e.now.Add(time.Minute))
			ok, err := rel.ReleaseClaim(e.ctx, outbox.Claim{ID: r.ID, Token: outbox.NewToken()}, e.now)
			e.no("ReleaseClaim with another token", ok, err)
			ok, err = rel.ReleaseClaim(e.ctx, c, e.now.Add(time.Minute))
			e.no("ReleaseClaim after the expiry", ok, err)
			ok, err = rel.ReleaseClaim(e.ctx, c, e.now)
			e.yes("ReleaseClaim", ok, err)
			got := e.lookup(r, e.now)
			e.equal("attempts", got.Attempts, 0)
			e.equal("last error", got.LastError, "")
			ok, err = rel.ReleaseClaim(e.ctx, c, e.now)
			e.no("ReleaseClaim again", ok, err)
			if _, err := rel.ReleaseClaim(e.ctx, outbox.Claim{ID: r.ID}, e.now); !errors.Is(err, outbox.ErrInvalidArgument) {
				e.Errorf("ReleaseClaim with a zero token: got %v, want ErrInvalidArgument", err)
			}
		}
	}},
	{"C11_no_claim_in_a_leased_lane", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec(""), e.at("k", e.now.Add(-time.Minute))}
		e.enlist(recs...)
		o := e.owner()
		o.acquireAll()
		for _, r := range recs {
			ok, err := e.store.TryClaim(e.ctx, outbox.Claim{ID: r.ID, Token: outbox.NewToken()}, e.now, e.now.Add(time.Minute))
			e.no("TryClaim in a leased lane", ok, err)
		}
		e.equal("count", e.count(e.now), int64(3))
		o.end()
		for _, r := range recs {
			e.claim(r.ID, e.now, e.now.Add(time.Minute))
		}
	}},
	{"C11_a_claim_of_before_is_shown_as_a_blocker", needLanes, func(e *env) {
		recs := []outbox.Record{e.rec("k"), e.rec("k")}
		e.enlist(recs...)
		c := e.claim(recs[0].ID, e.now, e.now.Add(time.Hour))
		e.owner().acquireAll()
		rows := e.hot(outbox.LaneRead{Lane: e.laneOf("k")})
		e.equal("rows", len(rows), 2)
		e.equal("claimed", []bool{rows[0].Claimed, rows[1].Claimed}, []bool{true, false})
		ok, err := e.store.Complete(e.ctx, c, e.now)
		e.yes("Complete", ok, err)
		e.equal("rows", len(e.hot(outbox.LaneRead{Lane: e.laneOf("k")})), 1)
	}},
	{"C11_claims_and_acquisition_exclude_each_other", needLanes, func(e *env) {
		var recs []outbox.Record
		for range 40 {
			recs = append(recs, e.rec("k"))
		}
		e.enlist(recs...)
		stores := e.others(2)
		claimed := make([]bool, len(recs))
		late := -1
		o := e.owner()
		if s, ok := stores[0].(outbox.LaneStore); ok {
			o.store = s
		}
		together(func() {
			for i, r := range recs {
				var err error
				claimed[i], err = stores[1].TryClaim(e.ctx, outbox.Claim{ID: r.ID, Token: outbox.NewToken()}, e.now, e.now.Add(time.Hour))
				if err != nil {
					e.Errorf("TryClaim: %v", err)
				}
				if claimed[i] && i > 0 && !claimed[i-1] {
					late = i
				}
			}
		}, func() {
			if _, err := o.try(100); err != nil {
				e.Errorf("AcquireLanes: %v", err)
			}
		})
		if late >= 0 {
			e.Errorf("row %d was claimed after a claim had been refused by the lease", late)
		}
		for i, row := range e.hot(outbox.LaneRead{Lane: e.laneOf("k")}) {
			e.equal("claimed", row.Claimed, claimed[i])
		}
	}},
}

// outcomesRefused checks that nothing can be done under the claim at now.
func (e *env) outcomesRefused(why string, c outbox.Claim, now time.Time) {
	e.Helper()
	ok, err := e.store.RenewClaim(e.ctx, c, now, now.Add(time.Hour))
	e.no("RenewClaim: "+why, ok, err)
	ok, err = e.store.RecordFailure(e.ctx, c, now, outbox.Failure{Reason: "refused"})
	e.no("RecordFailure: "+why, ok, err)
	ok, err = e.store.Complete(e.ctx, c, now)
	e.no("Complete: "+why, ok, err)
}

// fail2 is fail at another instant.
func (e *env) fail2(id outbox.ID, now, retryAt time.Time) {
	e.Helper()
	c := e.claim(id, now, now.Add(time.Minute))
	ok, err := e.store.RecordFailure(e.ctx, c, now, outbox.Failure{Reason: "refused", RetryAt: retryAt})
	e.yes("RecordFailure", ok, err)
}
