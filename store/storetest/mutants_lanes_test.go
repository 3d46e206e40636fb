package storetest

import (
	"context"
	"slices"

	"github.com/postrider/postrider/outbox"
)

// settling is a store that changes each settlement before it writes it.
func settling(change func(m *mutant, s *outbox.Settlement)) func(m *mutant) {
	return func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			r.Settlements = slices.Clone(r.Settlements)
			for i := range r.Settlements {
				change(m, &r.Settlements[i])
			}
			return m.Mem.SettleLanes(ctx, r)
		}
	}
}

// settled is a store that does more to each row that it has settled.
func settled(then func(m *mutant, s outbox.Settlement, r *row)) func(m *mutant) {
	return func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			was := make([]row, len(r.Settlements))
			for i, s := range r.Settlements {
				m.edit(s.ID, func(r *row) { was[i] = *r })
			}
			res, err := m.Mem.SettleLanes(ctx, r)
			m.mu.Lock()
			defer m.mu.Unlock()
			for i, s := range r.Settlements {
				if err != nil || res[i] != outbox.Settled {
					continue
				}
				r := m.rows[s.ID]
				if r == nil {
					r = &was[i]
				}
				then(m, s, r)
			}
			return res, err
		}
	}
}

// recount is settled for what happens to the dead letters of a delivered row's
// lane.
func recount(more func(s outbox.Settlement, r *row, d *outbox.DeadLetter) int64) func(m *mutant) {
	return settled(func(m *mutant, s outbox.Settlement, r *row) {
		for _, d := range m.dead {
			if s.Outcome == outbox.SettleAccepted && d.Lane == s.Lane && r.keyed() {
				d.LaterOut += more(s, r, d)
			}
		}
	})
}

func sameKey(r *row, d *outbox.DeadLetter) bool {
	return d.Record.Message.Key != nil && string(d.Record.Message.Key) == string(r.rec.Message.Key)
}

// moving is a store that changes what it knows before it moves.
func moving(change func(m *mutant, l *outbox.LaneLease)) func(m *mutant) {
	return func(m *mutant) {
		m.moveParked = func(ctx context.Context, leases []outbox.LaneLease, limit int) (int, []outbox.ParkedKey, error) {
			leases = slices.Clone(leases)
			m.mu.Lock()
			for i := range leases {
				change(m, &leases[i])
			}
			m.mu.Unlock()
			return m.Mem.MoveParked(ctx, leases, limit)
		}
	}
}

// moved is a store that writes down more, or less, when it has moved.
func moved(then func(m *mutant, n, limit int, l outbox.LaneLease)) func(m *mutant) {
	return func(m *mutant) {
		m.moveParked = func(ctx context.Context, leases []outbox.LaneLease, limit int) (int, []outbox.ParkedKey, error) {
			n, done, err := m.Mem.MoveParked(ctx, leases, limit)
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, l := range leases {
				if err == nil && !m.fenced(l.Lane, l.Owner, l.Epoch) {
					then(m, n, limit, l)
				}
			}
			return n, done, err
		}
	}
}

// granting is a store that says something else of each lease.
func granting(change func(m *mutant, l *outbox.LaneLease)) func(m *mutant) {
	return func(m *mutant) {
		m.acquireLanes = func(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			g, err := m.Mem.AcquireLanes(ctx, r)
			m.mu.Lock()
			defer m.mu.Unlock()
			for i := range g.Leases {
				change(m, &g.Leases[i])
			}
			return g, err
		}
	}
}

// releasing is a store that takes something else of each lane given back.
func releasing(change func(r outbox.LaneRequest, l *outbox.LaneLease)) func(m *mutant) {
	return func(m *mutant) {
		m.acquireLanes = func(ctx context.Context, r outbox.LaneRequest) (outbox.LaneGrant, error) {
			r.Release = slices.Clone(r.Release)
			for i := range r.Release {
				change(r, &r.Release[i])
			}
			return m.Mem.AcquireLanes(ctx, r)
		}
	}
}

// confirming is a store that asks something else of each lane.
func confirming(open func(m *mutant, n outbox.Lane) bool) func(m *mutant) {
	return func(m *mutant) {
		m.confirmed = func(ctx context.Context, lanes []outbox.Lane) (bool, error) {
			if ok, err := m.Mem.Confirmed(ctx, lanes); err != nil {
				return ok, err
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			return !slices.ContainsFunc(lanes, func(n outbox.Lane) bool { return open(m, n) }), nil
		}
	}
}

var laneMutants = []mutation{
	{"a count that moves the row", "P2_count_leaves_rows_in_place", true, settled(func(m *mutant, s outbox.Settlement, r *row) {
		if s.Outcome == outbox.SettleCount && !r.keyed() && !r.deferred {
			m.move(r, true)
		}
	})},
	{"a count that draws a position", "P2_count_leaves_rows_in_place", true, settled(func(m *mutant, s outbox.Settlement, r *row) {
		if s.Outcome == outbox.SettleCount {
			m.take(r)
			m.pos++
			r.pos = m.pos
			m.put(r, r.deferred)
		}
	})},
	{"a count that keeps the retry time", "P2_count_leaves_rows_in_place", true, settling(func(m *mutant, s *outbox.Settlement) {
		if s.Outcome == outbox.SettleCount {
			s.Outcome = outbox.SettleFailed
			m.edit(s.ID, func(r *row) { s.RetryAt = r.retryAt })
		}
	})},
	{"a count as a failure", "P2_count_goes_up_and_down", true, settling(func(m *mutant, s *outbox.Settlement) {
		if s.Outcome == outbox.SettleCount {
			s.Outcome = outbox.SettleFailed
		}
	})},
	{"a count that does not count", "P2_count_goes_up_and_down", true, settling(func(m *mutant, s *outbox.Settlement) {
		if s.Outcome == outbox.SettleCount {
			s.Attempt = false
		}
	})},
	{"a count without its reason", "P2_count_goes_up_and_down", true, settling(func(m *mutant, s *outbox.Settlement) {
		if s.Outcome == outbox.SettleCount {
			s.Reason = "counted"
		}
	})},
	{"nothing taken back", "P2_count_goes_up_and_down", true, settling(func(m *mutant, s *outbox.Settlement) { s.TakeBack = false })},
	{"taken back to nothing", "P2_count_goes_up_and_down", true, settled(func(m *mutant, s outbox.Settlement, r *row) {
		if s.TakeBack {
			r.rec.Attempts = 0
		}
	})},
	{"a count repeated", "P2_count_is_harmless_when_repeated", true, settling(func(m *mutant, s *outbox.Settlement) {
		if s.Outcome == outbox.SettleCount {
			m.edit(s.ID, func(r *row) {
				if r.rec.Attempts > 0 || !s.TakeBack {
					s.Attempts = r.rec.Attempts
				}
			})
		}
	})},
	{"a count without a fence", "P2_count_is_fenced", true, func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) (res []outbox.SettleResult, err error) {
			for _, s := range r.Settlements {
				one := r
				m.mu.Lock()
				if l := m.lanes[s.Lane]; s.Outcome == outbox.SettleCount && l != nil && l.owner != (outbox.ID{}) {
					one.Owner, s.Epoch = l.owner, l.epoch
				}
				m.mu.Unlock()
				one.Settlements = []outbox.Settlement{s}
				answer, err := m.Mem.SettleLanes(ctx, one)
				if err != nil {
					return nil, err
				}
				res = append(res, answer...)
			}
			return res, nil
		}
	}},
	{"a failure that takes nothing back", "P2_failure_takes_an_attempt_back", true, settling(func(m *mutant, s *outbox.Settlement) {
		s.TakeBack = s.TakeBack && s.Outcome != outbox.SettleFailed
	})},
	{"a death that takes nothing back", "P2_dead_takes_an_attempt_back", true, settling(func(m *mutant, s *outbox.Settlement) {
		s.TakeBack = s.TakeBack && s.Outcome != outbox.SettleDead
	})},
	{"a parking that takes nothing back", "P2_parking_takes_an_attempt_back", false, settling(func(m *mutant, s *outbox.Settlement) {
		s.TakeBack = s.TakeBack && s.Outcome != outbox.SettlePark
	})},
	{"a counted row let out of parking", "P4_count_leaves_a_row_aside", false, settled(func(m *mutant, s outbox.Settlement, r *row) {
		if s.Outcome == outbox.SettleCount && r.deferred {
			r.aside = false
			m.move(r, false)
		}
	})},
	{"an attempt taken back from none", "P2_invalid_settlements_change_nothing", false, settling(func(m *mutant, s *outbox.Settlement) {
		s.TakeBack = s.TakeBack && s.Attempts > 0
	})},
	{"counted and taken back at once", "P2_invalid_settlements_change_nothing", false, settling(func(m *mutant, s *outbox.Settlement) {
		s.TakeBack = s.TakeBack && !s.Attempt
	})},
	{"a failed row counted for the dead", "P2_invalid_settlements_change_nothing", false, settling(func(m *mutant, s *outbox.Settlement) {
		s.Later = s.Later && s.Outcome == outbox.SettleAccepted
	})},

	{"rows moved under an old config", "P4_move_under_an_old_config_moves_nothing", true, moving(func(m *mutant, l *outbox.LaneLease) { l.Config = m.lanes[l.Lane].config })},
	{"a config that is not known yet taken for known", "P4_move_under_an_old_config_moves_nothing", false, moving(func(m *mutant, l *outbox.LaneLease) {
		l.Config = min(l.Config, m.lanes[l.Lane].config)
	})},
	{"a config seen that was not known", "P4_confirmed_when_the_owner_has_seen_the_config", true, moved(func(m *mutant, n, limit int, l outbox.LaneLease) {
		m.lanes[l.Lane].seen = m.lanes[l.Lane].config
	})},
	{"a config seen before all is moved", "P4_confirmed_when_the_owner_has_seen_the_config", false, moved(func(m *mutant, n, limit int, l outbox.LaneLease) {
		if n == limit {
			m.lanes[l.Lane].seen = l.Config
		}
	})},
	{"a config seen and not recorded", "P4_confirmed_when_the_owner_has_seen_the_config", true, moved(func(m *mutant, n, limit int, l outbox.LaneLease) {
		m.lanes[l.Lane].seen = 0
	})},
	{"a config recorded by renewing", "P4_confirmed_when_the_owner_has_seen_the_config", true, granting(func(m *mutant, l *outbox.LaneLease) {
		m.lanes[l.Lane].seen = l.Config
	})},
	{"the first lane alone confirmed", "P4_confirmed_when_the_owner_has_seen_the_config", true, func(m *mutant) {
		m.confirmed = func(ctx context.Context, lanes []outbox.Lane) (bool, error) {
			if _, err := m.Mem.Confirmed(ctx, lanes); err != nil {
				return false, err
			}
			return m.Mem.Confirmed(ctx, lanes[:min(len(lanes), 1)])
		}
	}},
	{"everything confirmed", "P4_confirmed_when_the_owner_has_seen_the_config", true, confirming(func(*mutant, outbox.Lane) bool { return false })},
	{"lanes that do not exist confirmed", "P4_confirmed_when_the_owner_has_seen_the_config", true, func(m *mutant) {
		m.confirmed = func(ctx context.Context, lanes []outbox.Lane) (bool, error) {
			return m.Mem.Confirmed(ctx, slices.DeleteFunc(slices.Clone(lanes), func(n outbox.Lane) bool { return m.lanes[n] == nil }))
		}
	}},
	{"a free lane that waits for its owner", "P4_confirmed_where_nobody_sends", true, confirming(func(m *mutant, n outbox.Lane) bool {
		return m.lanes[n].seen < m.lanes[n].config
	})},
	{"an expired owner waited for", "P4_confirmed_when_the_owner_has_expired", false, confirming(func(m *mutant, n outbox.Lane) bool {
		w := m.relays[m.lanes[n].owner]
		return m.lanes[n].seen < m.lanes[n].config && w != nil && !w.ended
	})},
	{"a replay without a config version", "P4_replay_has_to_be_confirmed", true, func(m *mutant) {
		m.replayDead = func(ctx context.Context, by string, ids ...outbox.ID) (outbox.ReplayResult, error) {
			m.mu.Lock()
			was := map[outbox.Lane]int64{}
			for n, l := range m.lanes {
				was[n] = l.config
			}
			m.mu.Unlock()
			res, err := m.Mem.ReplayDead(ctx, by, ids...)
			m.mu.Lock()
			defer m.mu.Unlock()
			for n, l := range m.lanes {
				l.config = was[n]
			}
			return res, err
		}
	}},

	{"later messages not counted", "P4_later_messages_of_a_key_are_counted", true, settling(func(m *mutant, s *outbox.Settlement) { s.Later = false })},
	{"messages counted unasked", "P4_later_messages_of_a_key_are_counted", true, settling(func(m *mutant, s *outbox.Settlement) {
		s.Later = s.Outcome == outbox.SettleAccepted
	})},
	{"earlier messages counted", "P4_later_messages_of_a_key_are_counted", true, recount(func(s outbox.Settlement, r *row, d *outbox.DeadLetter) int64 {
		if s.Later && sameKey(r, d) && d.Pos > s.Pos {
			return 1
		}
		return 0
	})},
	{"messages of other keys counted", "P4_later_messages_of_a_key_are_counted", false, recount(func(s outbox.Settlement, r *row, d *outbox.DeadLetter) int64 {
		if s.Later && !sameKey(r, d) && d.Pos < s.Pos {
			return 1
		}
		return 0
	})},
	{"one message counted per call", "P4_later_messages_of_a_key_are_counted", true, func(m *mutant) {
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			r.Settlements = slices.Clone(r.Settlements)
			for i := range r.Settlements {
				r.Settlements[i].Later = r.Settlements[i].Later && !slices.ContainsFunc(r.Settlements[:i], func(s outbox.Settlement) bool { return s.Later })
			}
			return m.Mem.SettleLanes(ctx, r)
		}
	}},
	{"later messages counted again", "P4_later_messages_are_counted_once", true, func(m *mutant) {
		sent := map[outbox.ID]row{}
		m.settleLanes = func(ctx context.Context, r outbox.SettleRequest) ([]outbox.SettleResult, error) {
			m.mu.Lock()
			for _, s := range r.Settlements {
				if row := m.rows[s.ID]; row != nil {
					sent[s.ID] = *row
				}
			}
			m.mu.Unlock()
			res, err := m.Mem.SettleLanes(ctx, r)
			m.mu.Lock()
			defer m.mu.Unlock()
			for i, s := range r.Settlements {
				if row, ok := sent[s.ID]; ok && err == nil && s.Later && res[i] == outbox.Gone {
					m.countLater(table{&row})
				}
			}
			return res, err
		}
	}},
	{"a death that does not see its call", "P4_a_row_that_dies_counts_what_its_call_accepts", false, settled(func(m *mutant, s outbox.Settlement, r *row) {
		if d := m.dead[s.ID]; s.Outcome == outbox.SettleDead && d != nil {
			d.LaterOut = 0
		}
	})},
	{"rows aside not counted", "P4_later_row_that_was_moved_aside_is_counted", false, settling(func(m *mutant, s *outbox.Settlement) {
		m.edit(s.ID, func(r *row) { s.Later = s.Later && !r.aside })
	})},
	{"a replay that tells nothing", "P4_replay_tells_what_is_out", true, func(m *mutant) {
		m.replayDead = func(ctx context.Context, by string, ids ...outbox.ID) (outbox.ReplayResult, error) {
			res, err := m.Mem.ReplayDead(ctx, by, ids...)
			res.LaterOut = 0
			return res, err
		}
	}},
	{"a replay that adds up what stays", "P4_replay_tells_what_is_out", false, func(m *mutant) {
		m.replayDead = func(ctx context.Context, by string, ids ...outbox.ID) (outbox.ReplayResult, error) {
			m.mu.Lock()
			sum := int64(0)
			for _, id := range ids {
				if d := m.dead[id]; d != nil {
					sum += d.LaterOut
				}
			}
			m.mu.Unlock()
			res, err := m.Mem.ReplayDead(ctx, by, ids...)
			res.LaterOut = sum
			return res, err
		}
	}},
	{"lanes without dead letters", "P4_lease_tells_of_dead_letters_with_keys", true, granting(func(m *mutant, l *outbox.LaneLease) { l.Dead = false })},
	{"lanes all with dead letters", "P4_lease_tells_of_dead_letters_with_keys", true, granting(func(m *mutant, l *outbox.LaneLease) { l.Dead = true })},
	{"dead letters without keys told of", "P4_lease_tells_of_dead_letters_with_keys", true, granting(func(m *mutant, l *outbox.LaneLease) {
		for _, d := range m.dead {
			l.Dead = l.Dead || d.Lane == l.Lane
		}
	})},
	{"a lane that has had a dead letter", "P4_lease_tells_of_dead_letters_with_keys", false, func(m *mutant) {
		had := map[outbox.Lane]bool{}
		granting(func(m *mutant, l *outbox.LaneLease) {
			had[l.Lane] = had[l.Lane] || l.Dead
			l.Dead = had[l.Lane]
		})(m)
	}},
	{"few letters counted of many", "P4_many_later_messages_in_one_call", false, recount(func(s outbox.Settlement, r *row, d *outbox.DeadLetter) int64 {
		if s.Later && sameKey(r, d) && d.Pos < s.Pos && s.Pos%1000 == 0 {
			return -1
		}
		return 0
	})},
	{"every lane given back cleanly", "P2_unclean_release_is_unclean", false, releasing(func(r outbox.LaneRequest, l *outbox.LaneLease) { l.Unclean = false })},
	{"every lane of an ended owner clean", "P2_unclean_release_is_unclean", false, releasing(func(r outbox.LaneRequest, l *outbox.LaneLease) { l.Unclean = l.Unclean && !r.End })},
	{"unclean said once", "P2_expired_owner_is_taken_over_unclean", false, func(m *mutant) {
		said := map[outbox.Lane]int64{}
		granting(func(m *mutant, l *outbox.LaneLease) {
			l.Unclean = l.Unclean && said[l.Lane] != l.Epoch
			said[l.Lane] = l.Epoch
		})(m)
	}},
}
