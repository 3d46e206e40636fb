//go:build prove && linux

package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// truth is what tables and stream say when all is over.
type truth struct {
	orders     map[string]order // committed
	stream     []stored
	pending    int64 // rows ready, scheduled, waiting or parked
	dead       int64
	parked     int64 // keys
	owned      int64 // lanes of owners that were alive when their relays were told to stop
	committing map[string]time.Time
}

type order struct {
	key string
	n   int64
	due int64 // microseconds; 0: at once
}

// stored is one message of the stream, in its order.
type stored struct {
	id, key   string
	n         int64
	lane, pos int64
	at        time.Time
}

type verdict struct {
	committed, delivered, duplicates int
	late                             int // committed after a later position of their lane was delivered
	faults                           []string
}

func (v verdict) String() string {
	return fmt.Sprintf("%d orders committed, %d delivered, %d duplicates, %d committed late; faults found: %d",
		v.committed, v.delivered, v.duplicates, v.late, len(v.faults))
}

// judge looks for what must not be: anything lost, phantoms, first deliveries
// out of a key's order, early ones, dead letters, rows, parked keys and owners
// left behind.
func judge(r truth) (v verdict) {
	var lost, phantom, inverted, early []string
	v.committed = len(r.orders)
	first := map[string]bool{}
	var firsts []stored
	last := map[string]int64{}
	for _, m := range r.stream {
		o, ok := r.orders[m.id]
		if !ok || o.key != m.key || o.n != m.n {
			phantom = append(phantom, fmt.Sprintf("%s (%s/%d)", m.id, m.key, m.n))
		}
		// The database rounds what it keeps; the stream is on the same clock.
		if o.due > m.at.UnixMicro() {
			early = append(early, m.id)
		}
		if first[m.id] {
			continue
		}
		first[m.id] = true
		firsts = append(firsts, m)
		if m.key != "" {
			if m.n <= last[m.key] {
				inverted = append(inverted, fmt.Sprintf("%s/%d after %s/%d", m.key, m.n, m.key, last[m.key]))
			}
			last[m.key] = max(last[m.key], m.n)
		}
	}
	v.delivered, v.duplicates = len(firsts), len(r.stream)-len(firsts)
	for id, o := range r.orders {
		if !first[id] {
			lost = append(lost, fmt.Sprintf("%s (%s/%d)", id, o.key, o.n))
		}
	}
	v.late = late(firsts, r.committing)
	for _, f := range []struct {
		what string
		of   []string
	}{{"lost", lost}, {"phantoms", phantom}, {"out of their key's order", inverted}, {"sent early", early}} {
		if n := len(f.of); n > 0 {
			slices.Sort(f.of)
			v.faults = append(v.faults, fmt.Sprintf("%d %s: %s", n, f.what, strings.Join(f.of[:min(n, 5)], ", ")))
		}
	}
	for _, f := range []struct {
		what string
		n    int64
	}{{"dead letters", r.dead}, {"rows pending", r.pending}, {"keys parked", r.parked}, {"lanes owned by a relay that stopped", r.owned}} {
		if f.n != 0 {
			v.faults = append(v.faults, fmt.Sprintf("%d %s", f.n, f.what))
		}
	}
	return v
}

// late counts messages whose commit began after a later position of their lane
// was in the stream: what a reader that trusts its cursor would lose.
func late(firsts []stored, committing map[string]time.Time) (n int) {
	lanes := map[int64][]stored{}
	for _, m := range firsts {
		lanes[m.lane] = append(lanes[m.lane], m)
	}
	for _, lane := range lanes {
		slices.SortFunc(lane, func(a, b stored) int { return int(b.pos - a.pos) })
		var earliest time.Time
		for _, m := range lane {
			if c := committing[m.id]; !c.IsZero() && !earliest.IsZero() && earliest.Before(c) {
				n++
			}
			if earliest.IsZero() || m.at.Before(earliest) {
				earliest = m.at
			}
		}
	}
	return n
}

// Each thing that must not be is found.
func TestVerdict(t *testing.T) {
	t.Parallel()
	now := time.Now()
	sound := func() truth {
		return truth{
			orders: map[string]order{"a": {"k", 1, 0}, "b": {"k", 2, 0}, "c": {"", 0, now.UnixMicro()}},
			stream: []stored{
				{"a", "k", 1, 1, 10, now}, {"a", "k", 1, 1, 10, now}, {"b", "k", 2, 1, 12, now}, {"a", "k", 1, 1, 10, now}, {"c", "", 0, 1, 11, now.Add(time.Second)},
			},
			committing: map[string]time.Time{"c": now.Add(time.Millisecond)},
		}
	}
	if v := judge(sound()); len(v.faults) > 0 || v.committed != 3 || v.delivered != 3 || v.duplicates != 2 || v.late != 1 {
		t.Errorf("a sound run: %v %q", v, v.faults)
	}
	for want, broken := range map[string]func(*truth){
		"1 lost: b (k/2)":                         func(r *truth) { r.stream = slices.Delete(r.stream, 2, 3) },
		"1 phantoms: c (/0)":                      func(r *truth) { delete(r.orders, "c") },
		"1 phantoms: b (k/3)":                     func(r *truth) { r.stream[2].n = 3 },
		"1 out of their key's order: k/1 after k": func(r *truth) { r.stream = append(r.stream[2:3:3], r.stream...) },
		"1 sent early: c":                         func(r *truth) { r.stream[4].at = now.Add(-time.Second) },
		"1 dead letters":                          func(r *truth) { r.dead = 1 },
		"1 rows pending":                          func(r *truth) { r.pending = 1 },
		"1 keys parked":                           func(r *truth) { r.parked = 1 },
		"1 lanes owned":                           func(r *truth) { r.owned = 1 },
		"-1 rows pending":                         func(r *truth) { r.pending = -1 },
	} {
		r := sound()
		broken(&r)
		if v := judge(r); len(v.faults) != 1 || !strings.HasPrefix(v.faults[0], want) {
			t.Errorf("faults %q, want %q", v.faults, want)
		}
	}
}
