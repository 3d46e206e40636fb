package demo

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// run is a small faultless run: three customers, two orders each, lane and
// position as the database would give them.
func run() Recorded {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var r Recorded
	for i := range 6 {
		o := Order{Message: fmt.Sprintf("m%d", i), Customer: int64(i % 3), Number: int64(i/3 + 1)}
		r.Committed = append(r.Committed, o)
		r.Diary = append(r.Diary, Entry{Message: o.Message, Began: at(i * 10), Committing: at(i*10 + 4), Committed: at(i*10 + 5)})
		r.Stream = append(r.Stream, Stored{Order: o, Lane: 1, Pos: int64(i + 1), At: at(i*10 + 7)})
		r.Effects = append(r.Effects, o)
	}
	r.Diary = append(r.Diary, Entry{Message: "rolled back", Began: at(2)})
	return r
}

func TestJudge(t *testing.T) {
	t.Parallel()
	good := Verdict{Orders: 7, Committed: 6, RolledBack: 1, Delivered: 6, Effects: 6, P50: 2, P99: 2, Rate: 105.3}
	for _, tc := range []struct {
		name  string
		spoil func(*Recorded)
		want  func(*Verdict)
		fails []string // a word of each expected failure, in order
	}{
		{"faultless", func(*Recorded) {}, func(*Verdict) {}, nil},
		{"a committed order never reached the stream", func(r *Recorded) {
			r.Stream = append(r.Stream[:4:4], r.Stream[5])
		}, func(v *Verdict) { v.Lost, v.Delivered, v.Rate = 1, 5, 87.7 }, []string{"lost", "delivered"}},
		{"a committed order was never applied", func(r *Recorded) {
			r.Effects = r.Effects[1:]
		}, func(v *Verdict) { v.Lost, v.Effects = 1, 5 }, []string{"lost", "effects"}},
		{"one applied twice hides one never applied", func(r *Recorded) {
			r.Effects[0] = r.Effects[1]
		}, func(v *Verdict) { v.Lost = 1 }, []string{"lost"}},
		{"an order was applied twice", func(r *Recorded) {
			r.Effects = append(r.Effects, r.Effects[0])
		}, func(v *Verdict) { v.Effects = 7 }, []string{"effects"}},
		{"a rolled back order was delivered", func(r *Recorded) {
			r.Stream = append(r.Stream, Stored{Order: Order{"rolled back", 9, 1}, Lane: 2, Pos: 9, At: r.Stream[0].At})
		}, func(v *Verdict) { v.Phantoms, v.Delivered, v.Rate = 1, 7, 122.8 }, []string{"phantoms", "delivered"}},
		{"an effect without an order", func(r *Recorded) {
			r.Effects = append(r.Effects, Order{"nobody's", 9, 1})
		}, func(v *Verdict) { v.Phantoms, v.Effects = 1, 7 }, []string{"phantoms", "effects"}},
		{"one phantom, delivered and applied, counts once", func(r *Recorded) {
			o := Order{"rolled back", 9, 1}
			r.Stream = append(r.Stream, Stored{Order: o, Lane: 2, Pos: 9, At: r.Stream[0].At})
			r.Effects = append(r.Effects, o)
		}, func(v *Verdict) { v.Phantoms, v.Delivered, v.Effects, v.Rate = 1, 7, 7, 122.8 }, []string{"phantoms", "delivered", "effects"}},
		{"a message says something else than its order", func(r *Recorded) {
			r.Stream[5].Number = 3
		}, func(v *Verdict) { v.Phantoms = 1 }, []string{"phantoms"}},
		{"a copy says something else than its order", func(r *Recorded) {
			m := r.Stream[5]
			m.Customer = 0
			r.Stream = append(r.Stream, m)
		}, func(v *Verdict) { v.Phantoms, v.Duplicates = 1, 1 }, []string{"phantoms"}},
		{"two orders of a customer changed places", func(r *Recorded) {
			r.Stream[0], r.Stream[3] = r.Stream[3], r.Stream[0]
		}, func(v *Verdict) { v.OrderViolations = 1 }, []string{"order_violations"}},
		{"orders of different customers changed places", func(r *Recorded) {
			r.Stream[0], r.Stream[1] = r.Stream[1], r.Stream[0]
		}, func(*Verdict) {}, nil},
		{"an old order again after a newer one is a duplicate, not a violation", func(r *Recorded) {
			r.Stream = append(r.Stream, r.Stream[0], r.Stream[0])
		}, func(v *Verdict) { v.Duplicates = 2 }, nil},
		{"a commit after a later position was out", func(r *Recorded) {
			r.Diary[2].Committing = r.Stream[4].At.Add(1)
			r.Diary[2].Committed = r.Diary[2].Committing
			r.Stream[2].At = r.Diary[2].Committed.Add(2 * time.Millisecond)
		}, func(v *Verdict) { v.LateCommits = 1 }, nil},
		{"the same in another lane is no late commit", func(r *Recorded) {
			r.Diary[2].Committing = r.Stream[4].At.Add(1)
			r.Diary[2].Committed = r.Diary[2].Committing
			r.Stream[2].At = r.Diary[2].Committed.Add(2 * time.Millisecond)
			r.Stream[2].Lane = 2
		}, func(*Verdict) {}, nil},
		{"a commit that was only slow to return is no late commit", func(r *Recorded) {
			r.Diary[2].Committed = r.Stream[3].At.Add(1)
			r.Stream[2].At = r.Diary[2].Committed.Add(2 * time.Millisecond)
		}, func(*Verdict) {}, nil},
		{"a copy of a later position does not make a commit late", func(r *Recorded) {
			m := r.Stream[5]
			m.At = r.Stream[0].At.Add(-time.Second)
			r.Stream = append(r.Stream, m)
		}, func(v *Verdict) { v.Duplicates = 1 }, nil},
		{"dead, left and killed", func(r *Recorded) {
			r.Dead, r.Pending, r.Kills = 1, 2, 5
		}, func(v *Verdict) { v.Dead, v.PendingLeft, v.RelayKills = 1, 2, 5 }, []string{"dead", "pending_left"}},
		{"the relay was quicker than the commit's return", func(r *Recorded) {
			for i := range r.Stream {
				r.Stream[i].At = r.Diary[i].Committed.Add(-time.Microsecond)
			}
		}, func(v *Verdict) { v.P50, v.P99, v.Rate = 0, 0, 109.1 }, nil},
		{"nothing happened", func(r *Recorded) { *r = Recorded{} }, func(v *Verdict) { *v = Verdict{} }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, want := run(), good
			tc.spoil(&r)
			tc.want(&want)
			got := Judge(r)
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			fails := got.Failures()
			if len(fails) != len(tc.fails) {
				t.Fatalf("failures %q, want one for each of %q", fails, tc.fails)
			}
			for i, word := range tc.fails {
				if !strings.HasPrefix(fails[i], word+" ") {
					t.Errorf("failure %q does not start with %s", fails[i], word)
				}
			}
		})
	}
}

func TestLateCommitsAreDemandedOfServers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		server       bool
		orders, late int64
		want         int
	}{
		{true, 1000, 0, 1},
		{true, 1000, 1, 0},
		{true, 999, 0, 0},
		{false, 5000, 0, 0},
	} {
		v := Verdict{Orders: tc.orders, LateCommits: tc.late, server: tc.server}
		if got := v.Failures(); len(got) != tc.want {
			t.Errorf("%+v: failures %q, want %d", tc, got, tc.want)
		}
	}
}

func TestPercentileIsNearestRank(t *testing.T) {
	t.Parallel()
	var ds []time.Duration
	for i := range 200 {
		ds = append(ds, time.Duration(i+1)*time.Millisecond)
	}
	for _, tc := range []struct {
		n, p int
		want float64
	}{{200, 50, 100}, {200, 99, 198}, {1, 50, 1}, {1, 99, 1}, {3, 50, 2}, {3, 99, 3}, {0, 99, 0}} {
		if got := percentile(ds[:tc.n], tc.p); got != tc.want {
			t.Errorf("percentile %d of %d durations is %v, want %v", tc.p, tc.n, got, tc.want)
		}
	}
}

func TestVerdictKeys(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(Verdict{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range reflect.TypeFor[Verdict]().NumField() {
		if name := reflect.TypeFor[Verdict]().Field(i).Tag.Get("json"); name != "" {
			got = append(got, name)
		}
	}
	const want = "orders committed rolled_back delivered effects lost phantoms order_violations late_commits dead pending_left duplicates relay_kills p50_ms p99_ms msgs_per_s"
	if strings.Join(got, " ") != want {
		t.Errorf("keys %q, want %q", got, want)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil || len(m) != len(strings.Fields(want)) {
		t.Errorf("%s has %d keys (%v), want %d: none may be left out", b, len(m), err, len(strings.Fields(want)))
	}
}
