package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/outbox"
)

var countRules = []rule{
	{"B1_counts_rows_across_all_lanes", always, func(e *env) {
		e.equal("count of nothing", e.count(e.now), int64(0))
		var recs []outbox.Record
		for i := range 30 {
			recs = append(recs, e.rec([]string{"", "a", "b", "b", "c"}[i%5]))
		}
		e.enlist(recs...)
		e.equal("count", e.count(e.now), int64(30))
		e.equal("rows read", len(e.pending(e.now)), 30)
	}},
	{"B2_counts_exactly_what_is_eligible", always, func(e *env) {
		due, future, expired, live, waiting := e.at("k", e.now), e.at("", e.now.Add(time.Microsecond)), e.rec("k"), e.rec(""), e.rec("w")
		e.enlist(due, future, expired, live, waiting)
		e.claim(expired.ID, e.now.Add(-time.Minute), e.now)
		e.claim(live.ID, e.now, e.now.Add(time.Microsecond))
		e.fail(waiting.ID, e.now.Add(time.Microsecond))
		e.equal("count", e.count(e.now), int64(2))
		e.equal("rows read", ids(e.pending(e.now)), ids([]outbox.Record{due, expired}))
		e.equal("count a microsecond later", e.count(e.now.Add(time.Microsecond)), int64(5))
	}},
	{"B2_dead_and_parked_rows_are_not_counted", needDead, func(e *env) {
		dead, stays := e.rec("k"), e.rec("k")
		e.enlist(dead, stays)
		o := e.owner()
		o.acquireAll()
		e.equal("settled", o.settle(o.outcome(e.row(dead), outbox.SettleDead)), []outbox.SettleResult{outbox.Settled})
		e.equal("count", e.count(e.now), int64(1))
		if p, ok := e.store.(outbox.Parker); ok {
			_, err := p.ParkKey(e.ctx, outbox.ParkedKey{Route: e.fix.route, Key: []byte("k"), By: "test"})
			e.ok(err)
			e.equal("count under parking", e.count(e.now), int64(0))
			e.equal("rows under parking", len(e.pending(e.now)), 0)
		}
	}},
	{"B2_oldest_pending_is_of_an_eligible_row", needAge, func(e *env) {
		age := e.store.(outbox.AgeStore)
		_, ok, err := age.OldestPending(e.ctx, e.now)
		e.no("OldestPending of nothing", ok, err)
		oldest, next, future := e.rec("k"), e.rec(""), e.at("", e.now.Add(time.Minute))
		oldest.CreatedAt, next.CreatedAt, future.CreatedAt = e.now.Add(-3*time.Hour), e.now.Add(-2*time.Hour), e.now.Add(-4*time.Hour)
		e.enlist(next, oldest, future)
		check := func(want outbox.Record, now time.Time) {
			e.Helper()
			got, ok, err := age.OldestPending(e.ctx, now)
			e.yes("OldestPending", ok, err)
			if !got.Equal(want.CreatedAt) {
				e.Errorf("oldest: got %v, want %v", got, want.CreatedAt)
			}
		}
		check(oldest, e.now)
		check(future, e.now.Add(time.Minute))
		e.claim(oldest.ID, e.now, e.now.Add(time.Second))
		check(next, e.now)
	}},
	{"B3_zero_only_from_a_query", always, func(e *env) {
		e.put("k")
		ctx, cancel := context.WithCancel(e.ctx)
		cancel()
		if n, err := e.store.PendingCount(ctx, e.now); err == nil {
			e.Errorf("a count that could not be made returned %d without an error", n)
		}
		e.equal("count", e.count(e.now), int64(1))
	}},
	{"D1_migrate_is_idempotent_and_safe_together", needMigrate, func(e *env) {
		r := e.put("k")
		e.ok(e.fix.migrate(e.ctx))
		fns := make([]func(), 6)
		for i := range fns {
			fns[i] = func() {
				if err := e.fix.migrate(e.ctx); err != nil {
					e.Errorf("Migrate: %v", err)
				}
			}
		}
		together(fns...)
		e.same(r)
		e.put("k")
	}},
	{"D1_routes_are_known", needRouter, func(e *env) {
		routes, err := e.store.(outbox.Router).Routes(e.ctx)
		e.ok(err)
		next := outbox.Lane(1)
		slices.SortFunc(routes, func(a, b outbox.Route) int { return int(a.First - b.First) })
		for _, r := range routes {
			e.equal("first lane of "+r.Name, r.First, next)
			if r.Ordered < 1 || r.Unordered < 1 {
				e.Errorf("route %+v lacks lanes", r)
			}
			next += outbox.Lane(r.Lanes())
		}
		e.route()
	}},
}
