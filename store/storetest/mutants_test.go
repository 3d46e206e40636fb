package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// mutation is one thing that can be wrong.
type mutation struct {
	name   string
	rule   string // the subtest that has to notice
	model  bool   // the model has to notice as well
	breaks func(m *mutant)
}

var mutants = slices.Concat(storeMutants, laneMutants)

var storeMutants = []mutation{
	{"a type name of Go's", "S2_what_was_enlisted_comes_back_equal", true, func(m *mutant) {
		m.readPending = func(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error) {
			n, err := m.Mem.ReadPending(ctx, req, dst)
			for i := range dst[:n] {
				dst[i].Type = "*shop.Order"
			}
			return n, err
		}
	}},
	{"canonical header names", "S3_header_bytes_order_and_duplicates", true, func(m *mutant) {
		m.readPending = func(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error) {
			n, err := m.Mem.ReadPending(ctx, req, dst)
			for i := range dst[:n] {
				for j := range dst[i].Message.Headers {
					dst[i].Message.Headers[j].Name = strings.ToUpper(dst[i].Message.Headers[j].Name) + "_"
				}
			}
			return n, err
		}
	}},
	{"delivery times cut", "S3_created_truncates_and_delivery_rounds_up", false, func(m *mutant) {
		m.enlist = func(ctx context.Context, tx *MemTx, recs ...outbox.Record) error {
			recs = slices.Clone(recs)
			for i := range recs {
				recs[i].Message.DeliverAt = recs[i].Message.DeliverAt.Truncate(time.Microsecond)
			}
			return m.Mem.Enlist(ctx, tx, recs...)
		}
	}},
	{"native callbacks dropped", "S5_native_callback_is_refused", false, func(m *mutant) {
		m.enlist = func(ctx context.Context, tx *MemTx, recs ...outbox.Record) error {
			recs = slices.Clone(recs)
			for i := range recs {
				recs[i].Message.Native = nil
			}
			return m.Mem.Enlist(ctx, tx, recs...)
		}
	}},
	{"a commit of its own", "E1_rollback_leaves_nothing", true, func(m *mutant) {
		m.enlist = func(ctx context.Context, _ *MemTx, recs ...outbox.Record) error {
			tx := m.Begin()
			if err := m.Mem.Enlist(ctx, tx, recs...); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}
	}},
	{"borrowed memory kept", "E2_borrowed_memory_is_copied", false, func(m *mutant) {
		m.enlist = func(ctx context.Context, tx *MemTx, recs ...outbox.Record) error {
			err := m.Mem.Enlist(ctx, tx, recs...)
			for i := range recs {
				tx.rows[len(tx.rows)-len(recs)+i].rec.Message.Body = recs[i].Message.Body
			}
			return err
		}
	}},
	{"rows in the order of their ids", "E5_arguments_are_rows_in_order", true, func(m *mutant) {
		m.enlist = func(ctx context.Context, tx *MemTx, recs ...outbox.Record) error {
			recs = slices.Clone(recs)
			slices.SortFunc(recs, func(a, b outbox.Record) int { return compareID(a.ID, b.ID) })
			return m.Mem.Enlist(ctx, tx, recs...)
		}
	}},
	{"a batch half written", "E6_refused_enlist_leaves_the_transaction_usable", true, func(m *mutant) {
		m.enlist = func(ctx context.Context, tx *MemTx, recs ...outbox.Record) error {
			for _, r := range recs {
				if err := m.Mem.Enlist(ctx, tx, r); err != nil {
					return err
				}
			}
			return nil
		}
	}},
	{"duplicates ignored", "E8_pending_id_is_a_duplicate", true, func(m *mutant) {
		m.enlist = func(ctx context.Context, tx *MemTx, recs ...outbox.Record) error {
			if err := m.Mem.Enlist(ctx, tx, recs...); !errors.Is(err, outbox.ErrDuplicateID) {
				return err
			}
			return nil
		}
	}},
	{"no transaction accepted", "E9_no_transaction_is_refused", false, func(m *mutant) {
		m.enlist = func(ctx context.Context, tx *MemTx, recs ...outbox.Record) error {
			if tx == nil || tx.mem != m.Mem {
				return nil
			}
			return m.Mem.Enlist(ctx, tx, recs...)
		}
	}},
	{"read order reversed", "R3_ascending_id_order", true, func(m *mutant) {
		m.readPending = func(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error) {
			n, err := m.Mem.ReadPending(ctx, req, dst)
			slices.Reverse(dst[:n])
			return n, err
		}
	}},
	{"a claim that never expires", "R4_expired_claim_is_eligible", true, func(m *mutant) {
		m.tryClaim = func(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
			return m.Mem.TryClaim(ctx, c, now, expires.Add(1000*time.Hour))
		}
	}},
	{"an expiry of now still lives", "R4_expired_claim_is_eligible", true, func(m *mutant) {
		m.tryClaim = func(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
			return m.Mem.TryClaim(ctx, c, now, expires.Add(1))
		}
	}},
	{"zones read as UTC", "R5_instants_compare_in_UTC", false, func(m *mutant) {
		m.pendingCount = func(ctx context.Context, now time.Time) (int64, error) {
			_, offset := now.Zone()
			return m.Mem.PendingCount(ctx, now.Add(time.Duration(offset)*time.Second))
		}
	}},
	{"reads that claim", "R6_reads_do_not_claim", true, func(m *mutant) {
		m.readPending = func(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error) {
			n, err := m.Mem.ReadPending(ctx, req, dst)
			for _, r := range dst[:n] {
				_, _ = m.Mem.TryClaim(ctx, outbox.Claim{ID: r.ID, Token: outbox.NewToken()}, req.Now, req.Now.Add(time.Second))
			}
			return n, err
		}
	}},
	{"memory shared with the reader", "R7_memory_of_a_read", false, func(m *mutant) {
		m.readPending = func(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error) {
			n, err := m.Mem.ReadPending(ctx, req, dst)
			for i := range dst[:n] {
				m.edit(dst[i].ID, func(r *row) { dst[i].Message = r.rec.Message })
			}
			return n, err
		}
	}},
	{"a bad row hides the others", "R8_undecodable_row_does_not_hide_the_others", false, func(m *mutant) {
		m.readPending = func(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error) {
			n, err := m.Mem.ReadPending(ctx, req, dst)
			if err != nil {
				n = 0
			}
			return n, err
		}
	}},
	{"a claim that does not look", "C1_ineligible_rows_are_not_claimed", true, func(m *mutant) {
		m.tryClaim = func(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
			ok, err := m.Mem.TryClaim(ctx, c, now, expires)
			if err == nil && !ok {
				m.edit(c.ID, func(r *row) { r.token, r.claimed, ok = c.Token, expires, true })
			}
			return ok, err
		}
	}},
	{"check, then claim", "C2_concurrent_claimers_exactly_one", false, func(m *mutant) {
		var mu sync.Mutex
		m.tryClaim = func(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
			m.mu.Lock()
			r := m.rows[c.ID]
			ok := r != nil && m.eligible(r, now)
			m.mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				m.edit(c.ID, func(r *row) { r.token, r.claimed = c.Token, expires })
			}
			return ok, nil
		}
	}},
	{"a renewal that shortens", "C3_renew_never_shortens", true, func(m *mutant) {
		m.renewClaim = func(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
			ok, err := m.Mem.RenewClaim(ctx, c, now, expires)
			if ok {
				m.edit(c.ID, func(r *row) { r.claimed = expires })
			}
			return ok, err
		}
	}},
	{"a row that is marked and stays", "C4_complete_deletes", true, func(m *mutant) {
		m.complete = func(ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
			return m.Mem.ReleaseClaim(ctx, c, now)
		}
	}},
	{"a failure counted twice", "C5_failure_adds_one_attempt", true, func(m *mutant) {
		m.recordFailure = func(ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error) {
			ok, err := m.Mem.RecordFailure(ctx, c, now, f)
			if ok {
				m.edit(c.ID, func(r *row) { r.rec.Attempts++ })
			}
			return ok, err
		}
	}},
	{"completion without a token", "C6_outcomes_need_a_live_claim", true, func(m *mutant) {
		m.complete = func(ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
			m.edit(c.ID, func(r *row) { c.Token = r.token })
			if c.Token == (outbox.Token{}) {
				return false, nil
			}
			return m.Mem.Complete(ctx, c, now)
		}
	}},
	{"a late outcome accepted", "C6_outcomes_need_a_live_claim", true, func(m *mutant) {
		m.recordFailure = func(ctx context.Context, c outbox.Claim, _ time.Time, f outbox.Failure) (bool, error) {
			return m.Mem.RecordFailure(ctx, c, time.Time{}, f)
		}
	}},
	{"an empty reason stored", "C7_invalid_arguments_change_nothing", false, func(m *mutant) {
		m.recordFailure = func(ctx context.Context, c outbox.Claim, now time.Time, f outbox.Failure) (bool, error) {
			return m.Mem.RecordFailure(ctx, c, now, outbox.Failure{Reason: f.Reason + " ", RetryAt: f.RetryAt})
		}
	}},
	{"deaf to cancellation", "C8_cancellation_is_observed", false, func(m *mutant) {
		m.complete = func(ctx context.Context, c outbox.Claim, now time.Time) (bool, error) {
			return m.Mem.Complete(context.WithoutCancel(ctx), c, now)
		}
	}},
	{"claims beside a lease", "C11_no_claim_in_a_leased_lane", true, func(m *mutant) {
		m.tryClaim = func(ctx context.Context, c outbox.Claim, now, expires time.Time) (bool, error) {
			m.mu.Lock()
			relays := m.relays
			m.relays = map[outbox.ID]*window{}
			m.mu.Unlock()
			ok, err := m.Mem.TryClaim(ctx, c, now, expires)
			m.mu.Lock()
			m.relays = relays
			m.mu.Unlock()
			return ok, err
		}
	}},
	{"a count of everything", "B2_counts_exactly_what_is_eligible", true, func(m *mutant) {
		m.pendingCount = func(ctx context.Context, now time.Time) (int64, error) {
			return m.Mem.PendingCount(ctx, now.Add(time.Second))
		}
		m.pendingCount = func(context.Context, time.Time) (int64, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return int64(len(m.rows)), nil
		}
	}},
	{"unknown is zero", "B3_zero_only_from_a_query", false, func(m *mutant) {
		m.pendingCount = func(ctx context.Context, now time.Time) (int64, error) {
			n, _ := m.Mem.PendingCount(ctx, now)
			return n, nil
		}
	}},
	{"one epoch for ever", "P2_epoch_rises_with_every_acquisition", true, func(m *mutant) {
		m.acquireLanes = func(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			g, err := m.Mem.AcquireLanes(ctx, r)
			m.mu.Lock()
			defer m.mu.Unlock()
			for i, l := range g.Leases {
				g.Leases[i].Epoch, m.lanes[l.Lane].epoch = 1, 1
			}
			return g, err
		}
	}},
	{"a greedy relay", "P2_fair_share_bounds_acquisition", false, func(m *mutant) {
		m.acquireLanes = func(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			g, err := m.Mem.AcquireLanes(ctx, r)
			m.mu.Lock()
			for n, l := range m.lanes {
				if err == nil && r.Want > 0 && l.route == "default" && !m.leased(n) {
					m.acquire(n, r.Owner, m.now())
				}
			}
			m.mu.Unlock()
			if err != nil || r.Want == 0 {
				return g, err
			}
			r.Want = 0
			return m.Mem.AcquireLanes(ctx, r)
		}
	}},
	{"take-over called clean", "P2_expired_owner_is_taken_over_unclean", false, func(m *mutant) {
		m.acquireLanes = func(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			g, err := m.Mem.AcquireLanes(ctx, r)
			for i := range g.Leases {
				g.Leases[i].Unclean = false
			}
			return g, err
		}
	}},
	{"a window reopened", "P2_expired_window_is_never_reopened", true, func(m *mutant) {
		m.acquireLanes = func(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			m.mu.Lock()
			if w := m.relays[r.Owner]; w != nil && !w.live(m.now()) {
				delete(m.relays, r.Owner)
			}
			m.mu.Unlock()
			return m.Mem.AcquireLanes(ctx, r)
		}
	}},
	{"no fence", "P2_fence_stops_the_old_owner", true, func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			var res []outbox.SettleResult
			for _, s := range r.Settlements {
				owner := r.Owner
				m.mu.Lock()
				if l := m.lanes[s.Lane]; l != nil && l.owner != (outbox.ID{}) {
					owner, s.Epoch = l.owner, l.epoch
				}
				m.mu.Unlock()
				one, err := m.Mem.SettleLanes(ctx, outbox.SettleRequest{Owner: owner, Settlements: []outbox.Settlement{s}, TriedTo: r.TriedTo})
				if err != nil {
					return nil, err
				}
				res = append(res, one...)
			}
			return res, nil
		}
	}},
	{"accepted rows fenced", "P2_fence_stops_the_old_owner", true, func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			for _, s := range r.Settlements {
				m.mu.Lock()
				fenced := m.fenced(s.Lane, r.Owner, s.Epoch)
				m.mu.Unlock()
				if fenced {
					return slices.Repeat([]outbox.SettleResult{outbox.Fenced}, len(r.Settlements)), nil
				}
			}
			return m.Mem.SettleLanes(ctx, r)
		}
	}},
	{"a repeated outcome counts again", "P2_repeated_outcome_counts_once", true, func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			r.Settlements = slices.Clone(r.Settlements)
			for i, s := range r.Settlements {
				m.edit(s.ID, func(row *row) { r.Settlements[i].Attempts = row.rec.Attempts })
			}
			return m.Mem.SettleLanes(ctx, r)
		}
	}},
	{"rows settled by id alone", "P2_settling_names_lane_position_and_id", false, func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			r.Settlements = slices.Clone(r.Settlements)
			for i, s := range r.Settlements {
				m.edit(s.ID, func(row *row) { r.Settlements[i].Pos = row.pos })
			}
			return m.Mem.SettleLanes(ctx, r)
		}
	}},
	{"promotion keeps positions", "P2_promotion_moves_due_rows_under_new_positions", true, func(m *mutant) {
		m.promoteLanes = func(ctx context.Context, leases []outbox.LaneLease, dst []outbox.LaneRow) (int, time.Time, error) {
			was := map[outbox.ID]int64{}
			m.mu.Lock()
			for id, r := range m.rows {
				was[id] = r.pos
			}
			m.mu.Unlock()
			n, next, err := m.Mem.PromoteLanes(ctx, leases, dst)
			m.mu.Lock()
			defer m.mu.Unlock()
			for i := range dst[:n] {
				r := m.rows[dst[i].Record.ID]
				m.take(r)
				r.pos = was[r.rec.ID]
				m.put(r, false)
				dst[i].Pos = r.pos
			}
			return n, next, err
		}
	}},
	{"no probe for late commits", "P3_late_commit_is_named_by_key_prev", true, func(m *mutant) {
		m.readLanes = func(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
			n, err := m.Mem.ReadLanes(ctx, reads, dst)
			for i := range dst[:n] {
				dst[i].KeyPrev = 0
			}
			return n, err
		}
	}},
	{"a probe that is always true", "P3_key_prev_names_the_row_below_the_cursor", true, func(m *mutant) {
		m.readLanes = func(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
			n, err := m.Mem.ReadLanes(ctx, reads, dst)
			for i := range dst[:n] {
				dst[i].KeyPrev = 1
			}
			return n, err
		}
	}},
	{"waiting rows left out", "P3_blocking_rows_are_returned", true, func(m *mutant) {
		m.readLanes = func(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (int, error) {
			n, err := m.Mem.ReadLanes(ctx, reads, dst)
			kept := slices.DeleteFunc(dst[:n], func(r outbox.LaneRow) bool { return r.RetryAt.After(time.Now()) || r.Claimed })
			return len(kept), err
		}
	}},
	{"replay at the end", "P4_replay_returns_the_row_to_its_place", true, func(m *mutant) {
		m.replayDead = func(ctx context.Context, by string, ids ...outbox.ID) (outbox.ReplayResult, error) {
			m.mu.Lock()
			for _, id := range ids {
				if d := m.dead[id]; d != nil {
					m.pos++
					d.Pos = m.pos
				}
			}
			m.mu.Unlock()
			return m.Mem.ReplayDead(ctx, by, ids...)
		}
	}},
	{"parked rows still offered", "P4_settle_park_parks_the_key", true, func(m *mutant) {
		m.readPending = func(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error) {
			m.mu.Lock()
			parked := m.parked
			m.parked = nil
			m.mu.Unlock()
			n, err := m.Mem.ReadPending(ctx, req, dst)
			m.mu.Lock()
			m.parked = parked
			m.mu.Unlock()
			return n, err
		}
	}},
	{"an inclusive cursor", "R3_after_is_exclusive", true, func(m *mutant) {
		m.readPending = func(ctx context.Context, req outbox.ReadRequest, dst []outbox.Record) (int, error) {
			for i := len(req.After) - 1; i >= 0 && req.After != (outbox.ID{}); i-- {
				if req.After[i]--; req.After[i] != 0xff {
					break
				}
			}
			return m.Mem.ReadPending(ctx, req, dst)
		}
	}},
	{"lanes read past their limit", "P3_limit_per_read", true, func(m *mutant) {
		m.readLanes = func(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneRow) (n int, err error) {
			for _, rd := range reads {
				all := make([]outbox.LaneRow, 1024)
				got, err := m.Mem.ReadLanes(ctx, []outbox.LaneRead{rd}, all)
				if err != nil {
					return n, err
				}
				n += copy(dst[n:], all[:got])
			}
			return n, nil
		}
	}},
	{"live lanes taken", "P2_live_lanes_are_not_taken", false, func(m *mutant) {
		m.acquireLanes = func(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			m.mu.Lock()
			for id, w := range m.relays {
				if id != r.Owner && r.Want > 0 {
					w.ended = true
				}
			}
			m.mu.Unlock()
			return m.Mem.AcquireLanes(ctx, r)
		}
	}},
	{"a window shortened", "P2_renewal_never_shortens", false, func(m *mutant) {
		m.acquireLanes = func(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			m.mu.Lock()
			if w := m.relays[r.Owner]; w.live(m.now()) {
				w.expires = m.now().Add(time.Millisecond)
			}
			m.mu.Unlock()
			return m.Mem.AcquireLanes(ctx, r)
		}
	}},
	{"a mark that falls", "P2_tried_to_rises_and_never_falls", true, func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			m.mu.Lock()
			for _, t := range r.TriedTo {
				if !m.fenced(t.Lane, r.Owner, t.Epoch) {
					m.lanes[t.Lane].triedTo = 0
				}
			}
			m.mu.Unlock()
			return m.Mem.SettleLanes(ctx, r)
		}
	}},
	{"every failure an attempt", "P2_failure_without_an_attempt", true, func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			r.Settlements = slices.Clone(r.Settlements)
			for i := range r.Settlements {
				r.Settlements[i].Attempt = true
			}
			return m.Mem.SettleLanes(ctx, r)
		}
	}},
	{"a failed key moved out of its lane", "P2_failed_keyed_row_stays_at_the_head_of_its_key", true, func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			res, err := m.Mem.SettleLanes(ctx, r)
			for i, s := range r.Settlements {
				if err == nil && s.Outcome == outbox.SettleFailed && res[i] == outbox.Settled {
					m.edit(s.ID, func(r *row) { m.move(r, true) })
				}
			}
			return res, err
		}
	}},
	{"a whole batch acknowledged", "P2_only_named_rows_are_settled", true, func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			res, err := m.Mem.SettleLanes(ctx, r)
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, s := range r.Settlements {
				for _, row := range slices.Clone(m.hot[s.Lane]) {
					if s.Outcome == outbox.SettleAccepted && row.pos < s.Pos {
						m.take(row)
					}
				}
			}
			return res, err
		}
	}},
	{"claimed rows promoted", "P2_promotion_skips_live_claims", true, func(m *mutant) {
		m.promoteLanes = func(ctx context.Context, leases []outbox.LaneLease, dst []outbox.LaneRow) (int, time.Time, error) {
			m.mu.Lock()
			for _, r := range m.rows {
				if r.deferred {
					r.unclaim()
				}
			}
			m.mu.Unlock()
			return m.Mem.PromoteLanes(ctx, leases, dst)
		}
	}},
	{"promotion without a lease", "P2_promotion_is_fenced", true, func(m *mutant) {
		m.promoteLanes = func(ctx context.Context, leases []outbox.LaneLease, dst []outbox.LaneRow) (int, time.Time, error) {
			leases = slices.Clone(leases)
			m.mu.Lock()
			for i := range leases {
				leases[i].Owner, leases[i].Epoch = m.lanes[leases[i].Lane].owner, m.lanes[leases[i].Lane].epoch
			}
			m.mu.Unlock()
			return m.Mem.PromoteLanes(ctx, leases, dst)
		}
	}},
	{"unparked rows at the end", "P4_parked_key_waits_and_returns_in_order", false, func(m *mutant) {
		m.moveParked = func(ctx context.Context, leases []outbox.LaneLease, limit int) (int, []outbox.ParkedKey, error) {
			m.mu.Lock()
			for _, l := range leases {
				for _, r := range slices.Clone(m.deferred[l.Lane]) {
					if p := m.parked[keyOf(r)]; r.aside && p != nil && p.Unparking {
						m.take(r)
						m.pos++
						r.pos = m.pos
						m.put(r, true)
					}
				}
			}
			m.mu.Unlock()
			return m.Mem.MoveParked(ctx, leases, limit)
		}
	}},
	{"a key lifted before its rows are back", "P4_moving_is_bounded_and_fenced", true, func(m *mutant) {
		m.moveParked = func(ctx context.Context, leases []outbox.LaneLease, limit int) (int, []outbox.ParkedKey, error) {
			moved, done, err := m.Mem.MoveParked(ctx, leases, limit)
			m.mu.Lock()
			defer m.mu.Unlock()
			for id, p := range m.parked {
				if p.Unparking {
					delete(m.parked, id)
					done = append(done, *p)
				}
			}
			return moved, done, err
		}
	}},
}
