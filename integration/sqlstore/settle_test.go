package sqlstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

// TestSettleAmongOthers: accepted rows that lie between those of others, close
// together or far apart, are deleted, each of them and no other, and one that is
// gone is told apart.
func TestSettleAmongOthers(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, nil)
		var recs []outbox.Record
		for range 1000 {
			r := record("k")
			r.Message.Body = r.Message.Body[:8]
			recs = append(recs, r)
		}
		enlist(t, s, db, recs...)
		g, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 100, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte("k"))
		read := func() []outbox.LaneRow {
			rows := make([]outbox.LaneRow, 1024)
			n, err := s.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: lane}}, rows)
			if err != nil {
				t.Fatal(err)
			}
			return rows[:n]
		}
		all := read()
		left := map[int64]bool{}
		for _, row := range all {
			left[row.Pos] = true
		}
		for name, which := range map[string]func(i int) bool{
			"a run":              func(i int) bool { return i < 200 },
			"every second":       func(i int) bool { return i >= 200 && i < 400 && i%2 == 0 },
			"two runs":           func(i int) bool { return i >= 400 && i < 430 || i >= 500 && i < 530 },
			"a few far apart":    func(i int) bool { return i >= 600 && i%100 == 0 },
			"many, some of them": func(i int) bool { return i >= 600 && (i%50 == 1 || i < 640 && i > 600) },
			"the last":           func(i int) bool { return i == 999 },
		} {
			r := outbox.SettleRequest{Owner: g.Leases[0].Owner}
			for i, row := range all {
				if which(i) {
					r.Settlements = append(r.Settlements, outbox.Settlement{
						Lane: lane, Epoch: g.Leases[lane-1].Epoch, Pos: row.Pos, ID: row.Record.ID, Outcome: outbox.SettleAccepted, Hint: row.Hint,
					})
				}
			}
			for _, want := range []outbox.SettleResult{outbox.Settled, outbox.Gone} {
				res, err := s.SettleLanes(t.Context(), r)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for i, got := range res {
					if got != want {
						t.Errorf("%s: settlement %d: got %d, want %d", name, i, got, want)
					}
				}
			}
			for _, st := range r.Settlements {
				delete(left, st.Pos)
			}
			rows := read()
			if len(rows) != len(left) || slices.ContainsFunc(rows, func(row outbox.LaneRow) bool { return !left[row.Pos] }) {
				t.Errorf("%s: %d rows are left, want %d, or others", name, len(rows), len(left))
			}
		}
	})
}

// TestReadPendingOfLongAndShortLanes: a lane is read in the order of ids whether
// it holds a handful of rows among many others or most of them.
func TestReadPendingOfLongAndShortLanes(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, nil)
		var recs []outbox.Record
		want := map[outbox.Lane][]outbox.ID{}
		route := outbox.Route{First: 1, Ordered: 16, Unordered: 8}
		for i := range 2500 {
			key := "long"
			switch i % 100 {
			case 0:
				key = "short"
			case 1:
				key = ""
			}
			r := record(key)
			r.Message.Body = nil
			lane := outbox.LaneOf(route, r.ID, r.Message.Key)
			if key == "" {
				lane = outbox.Unordered
			}
			want[lane] = append(want[lane], r.ID)
			recs = append(recs, r)
		}
		enlist(t, s, db, recs...)
		for i := range 1100 { // more unordered ones than are sorted
			r := record("")
			r.Message.Body = nil
			recs[i] = r
			want[outbox.Unordered] = append(want[outbox.Unordered], r.ID)
		}
		if len(want) != 3 {
			t.Fatalf("%d lanes have rows, want 3", len(want))
		}
		check := func(unordered int) {
			for lane, ids := range want {
				if lane == outbox.Unordered {
					ids = ids[:unordered]
				}
				var got []outbox.ID
				dst := make([]outbox.Record, 300)
				for req := (outbox.ReadRequest{Lane: lane, Now: time.Now()}); ; {
					n, err := s.ReadPending(t.Context(), req, dst)
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range dst[:n] {
						got = append(got, r.ID)
					}
					if n < len(dst) {
						break
					}
					req.After = dst[n-1].ID
				}
				if !slices.Equal(got, ids) {
					t.Errorf("lane %d: %d rows came back, want %d, or in another order", lane, len(got), len(ids))
				}
			}
		}
		check(25)
		enlist(t, s, db, recs[:1100]...)
		check(1125)
	})
}
