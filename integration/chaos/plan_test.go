//go:build prove && linux

package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// fault is one thing that goes wrong: from at on, for a while.
type fault struct {
	kind  *kind
	at    time.Duration
	lasts time.Duration
	relay int // all: every relay at once
}

const all = -1

func (f fault) String() string {
	who := ""
	switch {
	case f.kind.target == database, f.kind.target == broke:
	case f.relay == all:
		who = " of all relays"
	default:
		who = fmt.Sprintf(" of relay %d", f.relay)
	}
	return fmt.Sprintf("%7.3fs  %s%s, %v", f.at.Seconds(), f.kind.name, who, f.lasts)
}

// target is what a fault hits. Faults of one target follow each other; those of
// different ones overlap as they come.
type target string

const (
	relayProcess target = "process"
	databaseLine target = "database line"
	brokerLine   target = "broker line"
	database     target = "database"
	broke        target = "broker"
)

type kind struct {
	name   string
	target target
	lo, hi time.Duration // how long
	do     func(c *chaos, f fault) (happened bool)
}

// kinds are the faults. A stop ends before, at or after the end of the lease,
// and about the moment at which it is not trusted any more.
var kinds = []*kind{
	{"SIGKILL", relayProcess, 0, 800 * time.Millisecond, (*chaos).sigkill},
	{"SIGSTOP beyond the lease", relayProcess, ttl + 500*time.Millisecond, ttl + 2*time.Second, (*chaos).sigstop},
	{"SIGSTOP about the lease", relayProcess, ttl - 400*time.Millisecond, ttl + 100*time.Millisecond, (*chaos).sigstop},
	{"replacement", relayProcess, 0, 0, (*chaos).replace},
	{"database restart", database, 0, time.Second, restartDatabase("fast")},
	{"database crash", database, 0, time.Second, restartDatabase("immediate")},
	{"connections killed", database, 0, 0, (*chaos).terminate},
	{"broker crash", broke, 0, 1500 * time.Millisecond, (*chaos).restartBroker},
	{"broker SIGSTOP", broke, 500 * time.Millisecond, 3 * time.Second, (*chaos).stopBroker},
	{"database line cut", databaseLine, 0, 2 * time.Second, lineFault("cut")},
	{"database line held", databaseLine, 500 * time.Millisecond, 4 * time.Second, lineFault("held")},
	{"database line half-open", databaseLine, 0, 0, lineFault("half-open")},
	{"database line slow", databaseLine, time.Second, 4 * time.Second, lineFault("slow")},
	{"broker line cut", brokerLine, 0, 2 * time.Second, lineFault("cut")},
	{"broker line held", brokerLine, 500 * time.Millisecond, 6 * time.Second, lineFault("held")},
	{"broker line half-open", brokerLine, 0, 0, lineFault("half-open")},
	{"broker line slow", brokerLine, time.Second, 4 * time.Second, lineFault("slow")},
}

// newPlan is the faults of a run of about the given length: every kind in every
// round, in another order. One seed, one plan.
func newPlan(seed uint64, length time.Duration, relays int) (plan []fault) {
	rng := rand.New(rand.NewPCG(seed, 1))
	between := func(lo, hi time.Duration) time.Duration {
		return (lo + time.Duration(rng.Int64N(int64(hi-lo)+1))).Round(time.Millisecond)
	}
	free := map[string]time.Duration{} // when a target is whole again
	at := time.Second
	for at < length {
		round := slices.Clone(kinds)
		rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		for _, k := range round {
			f := fault{kind: k, lasts: between(k.lo, k.hi), relay: rng.IntN(relays)}
			if (k.target == databaseLine || k.target == brokerLine) && rng.IntN(4) == 0 {
				f.relay = all
			}
			var hit []string
			for i := range relays {
				if f.relay == all || f.relay == i {
					hit = append(hit, fmt.Sprint(k.target, i))
				}
			}
			if k.target == database || k.target == broke {
				hit = []string{string(k.target)}
			}
			f.at = at
			for _, h := range hit {
				f.at = max(f.at, free[h])
			}
			for _, h := range hit {
				free[h] = f.at + f.lasts + 300*time.Millisecond
			}
			plan = append(plan, f)
			at += between(200*time.Millisecond, 1800*time.Millisecond)
		}
	}
	slices.SortStableFunc(plan, func(a, b fault) int { return int(a.at - b.at) })
	return plan
}

func TestPlan(t *testing.T) {
	t.Parallel()
	text := func(plan []fault) string {
		var b strings.Builder
		for _, f := range plan {
			fmt.Fprintln(&b, f)
		}
		return b.String()
	}
	a := newPlan(7, time.Minute, 3)
	if text(a) != text(newPlan(7, time.Minute, 3)) || text(a) == text(newPlan(8, time.Minute, 3)) {
		t.Error("a plan is not its seed's alone")
	}
	for _, k := range kinds {
		if n := len(slices.DeleteFunc(slices.Clone(a), func(f fault) bool { return f.kind != k })); n < 2 {
			t.Errorf("%d times %s", n, k.name)
		}
	}
}
