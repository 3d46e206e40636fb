package histories_test

import (
	"sync"
	"testing"
	"time"
)

// tallies sums up what occurred in several histories.
type tallies map[string]int

func (t tallies) add(g *rig, parts []*part) {
	for what, n := range g.tally {
		t[what] += n
	}
	for _, p := range parts {
		t["parts"]++
		t["operations of parts"] += len(p.ops)
	}
}

// Claims by many connections on few rows, with cancelled calls and killed
// connections: each row for itself behaves as the contract says (R4, C1-C7,
// C10).
func TestClaims(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		sum := tallies{}
		for _, seed := range e.seeds(3, 60) {
			g := newRig(t, e, 3)
			g.must(g.run(newPlanner(seed, g.rows, true).claims(8, 144), true, seed))
			parts := g.byRow()
			verify(t, seed, parts)
			sum.add(g, parts)
			g.close()
			if t.Failed() {
				return
			}
		}
		want := []string{"claim true", "claim false", "renew true", "renew false", "complete true", "complete false",
			"fail true", "fail false", "release true", "release false", "read pending", "unanswered"}
		if e.server {
			want = append(want, "connection killed")
		}
		mustOccur(t, sum, want...)
	})
}

var (
	dense    = mix{relays: 4, workers: 3, claimers: 3, beats: 70, beat: 3 * time.Millisecond, every: 4}
	handover = mix{relays: 5, workers: 2, claimers: 3, beats: 26, beat: time.Millisecond, every: 1}
	expiring = mix{relays: 4, workers: 3, claimers: 3, beats: 85, beat: 40 * time.Millisecond, every: 5, pauses: true}
)

// Lanes taken, renewed, given back and lost by several relays while others
// settle under new and old leases and others claim the rows: each lane with its
// rows behaves as the contract says (C5-C11, the leases and their fence).
func TestLeases(t *testing.T) {
	always := []string{"claim true", "claim false", "acquire: lane taken", "acquire: lane kept", "acquire: end", "read lanes", "settle failed: fenced", "unanswered"}
	t.Run("dense", func(t *testing.T) {
		leases(t, dense, 4, 100, append(always, "fail true", "settle failed: settled", "settle failed: gone", "settle accepted: settled", "promote: rows moved"))
	})
	t.Run("handover", func(t *testing.T) { leases(t, handover, 6, 150, always) })
	t.Run("expiring", func(t *testing.T) {
		leases(t, expiring, 4, 24, append(always, "settle failed: settled", "acquire: lane taken from an expired owner", "acquire: owner had ended"))
	})
}

// leases makes histories of the mix, and several at once where they mostly
// wait.
func leases(t *testing.T, m mix, n, long int, want []string) {
	onEngines(t, func(t *testing.T, e engine) {
		n, width := n, 1
		if m.pauses {
			width = 4
		}
		sum, list := tallies{}, e.seeds(n, long)
		for len(list) > 0 && !t.Failed() {
			some := list[:min(width, len(list))]
			list = list[len(some):]
			rigs, errs := make([]*rig, len(some)), make([]error, len(some))
			var wg sync.WaitGroup
			for i, seed := range some {
				g := newRig(t, e, 3)
				rigs[i] = g
				wg.Go(func() {
					errs[i] = g.run(newPlanner(seed, g.rows, true).leased(m), true, seed)
				})
			}
			wg.Wait()
			for i, g := range rigs {
				g.must(errs[i])
				parts := g.byLane()
				verify(t, some[i], parts)
				sum.add(g, parts)
				g.close()
			}
		}
		if !t.Failed() {
			mustOccur(t, sum, want...)
		}
	})
}
