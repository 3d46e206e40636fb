package histories_test

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// tallies sums up what occurred in parallel histories.
type tallies struct {
	mu  sync.Mutex
	sum map[string]int
}

func (t *tallies) add(g *rig, parts []*part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sum == nil {
		t.sum = map[string]int{}
	}
	addTally(t.sum, g.tally)
	for _, p := range parts {
		t.sum["parts"]++
		t.sum["operations of parts"] += len(p.ops)
	}
}

// Claims by many connections on few rows, with cancelled calls and killed
// connections: each row for itself behaves as the contract says (R4, C1-C7,
// C10).
func TestClaims(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		var sum tallies
		for _, seed := range seeds(4, 150) {
			g := newRig(t, e, 3)
			kill := 150 * time.Millisecond
			g.run(newPlanner(seed, g.rows, true).claims(8, 144), kill, seed)
			parts := g.byRow()
			verify(t, seed, parts)
			sum.add(g, parts)
			if t.Failed() {
				return
			}
		}
		want := []string{"claim true", "claim false", "renew true", "renew false", "complete true", "complete false",
			"fail true", "fail false", "release true", "release false", "claim unknown", "fail unknown"}
		if e.server {
			want = append(want, "connection killed")
		}
		mustOccur(t, sum.sum, want...)
	})
}

// Lanes taken, renewed, given back and lost by several relays while others
// settle under new and old leases and others claim the rows: each lane with its
// rows behaves as the contract says (C5-C11, the leases and their fence).
func TestLeases(t *testing.T) {
	for _, kind := range []struct {
		name   string
		beats  int
		beat   time.Duration
		pauses bool
		n      int
		long   int
	}{
		{"dense", 70, 3 * time.Millisecond, false, 6, 200},
		{"expiring", 100, 40 * time.Millisecond, true, 4, 60},
	} {
		t.Run(kind.name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, e engine) {
				var sum tallies
				t.Run("seeds", func(t *testing.T) {
					for _, seed := range seeds(kind.n, kind.long) {
						run := func(t *testing.T) {
							g := newRig(t, e, 3)
							p := newPlanner(seed, g.rows, true).leased(4, 3, 3, kind.beats, kind.beat, kind.pauses)
							g.run(p, time.Duration(kind.beats)*kind.beat/4, seed)
							parts := g.byLane()
							verify(t, seed, parts)
							sum.add(g, parts)
						}
						t.Run(fmt.Sprint(seed), func(t *testing.T) {
							if kind.pauses {
								t.Parallel()
							}
							run(t)
						})
					}
				})
				want := []string{"claim true", "claim false", "fail true", "acquire: lane taken", "acquire: lane kept", "acquire: end",
					"settle failed: settled", "settle failed: gone", "settle failed: fenced", "settle accepted: settled", "promote: rows moved",
					"acquire unknown", "settle unknown"}
				if kind.pauses {
					want = append(want, "acquire: lane taken from an expired owner", "acquire: owner had ended")
				}
				mustOccur(t, sum.sum, want...)
			})
		})
	}
}
