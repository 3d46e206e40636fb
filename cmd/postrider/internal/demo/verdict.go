package demo

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Recorded is what the two databases and the stream say at the end of a run.
type Recorded struct {
	// Server tells that many shop transactions could be open at once. Only
	// then can a message commit late.
	Server bool
	// Committed are the shop's order rows: the truth about what was ordered.
	Committed []Order
	// Diary is what the producers wrote down about each order they placed.
	Diary []Entry
	// Stream is every message of the stream, in stream order.
	Stream []Stored
	// Effects are the rows that the consumer's handler wrote, one for each time
	// it ran to a commit.
	Effects []Order
	// Dead is the number of dead letters.
	Dead int64
	// Pending is the number of rows left in the outbox: ready, scheduled,
	// waiting for a retry or parked.
	Pending int64
	// Kills is the number of relays killed while at least a hundred
	// committed messages were undelivered.
	Kills int64
}

// Order is one order: its message, its customer, and the number it has among
// the customer's orders.
type Order struct {
	Message  string
	Customer int64
	Number   int64
}

// Entry is one order in the producers' diary.
type Entry struct {
	Message string
	Began   time.Time // before the transaction's first statement
	// Committing and Committed are the clock just before and just after
	// Commit. Both are zero for an order rolled back on purpose.
	Committing time.Time
	Committed  time.Time
}

// Stored is one message of the stream.
type Stored struct {
	Order
	Lane int64
	Pos  int64
	At   time.Time // when the broker stored it
}

// Verdict is the result of a run. Its JSON keys are a promise.
type Verdict struct {
	// Orders is what was placed: committed and rolled back.
	Orders     int64 `json:"orders"`
	Committed  int64 `json:"committed"`
	RolledBack int64 `json:"rolled_back"`
	// Delivered counts distinct message ids in the stream.
	Delivered int64 `json:"delivered"`
	// Effects counts how often the consumer's handler took effect.
	Effects int64 `json:"effects"`
	// Lost are committed orders that are missing in the stream or among the
	// effects.
	Lost int64 `json:"lost"`
	// Phantoms are messages delivered or applied without a committed order that
	// says the same.
	Phantoms int64 `json:"phantoms"`
	// OrderViolations are first deliveries that came after a higher number of
	// the same customer.
	OrderViolations int64 `json:"order_violations"`
	// LateCommits are messages whose commit began after a later position of
	// their lane was in the stream.
	LateCommits int64 `json:"late_commits"`
	Dead        int64 `json:"dead"`
	PendingLeft int64 `json:"pending_left"`
	// Duplicates are the messages of the stream beyond the first of each id.
	Duplicates int64 `json:"duplicates"`
	RelayKills int64 `json:"relay_kills"`
	// P50 and P99 are milliseconds from commit to the broker's ack.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	// Rate is first deliveries a second, from the first order's begin to the
	// last first delivery.
	Rate float64 `json:"msgs_per_s"`

	server bool
}

// lateProof is the number of orders from which a run on a server must have
// met a late commit: without one it has not shown what it is there to show.
const lateProof = 1000

// Judge computes the verdict.
func Judge(r Recorded) Verdict {
	v := Verdict{
		Orders:      int64(len(r.Diary)),
		Committed:   int64(len(r.Committed)),
		Effects:     int64(len(r.Effects)),
		Dead:        r.Dead,
		PendingLeft: r.Pending,
		RelayKills:  r.Kills,
		server:      r.Server,
	}
	v.RolledBack = v.Orders - v.Committed

	first := firstDeliveries(r.Stream)
	v.Delivered = int64(len(first))
	v.Duplicates = int64(len(r.Stream) - len(first))

	committed := make(map[string]Order, len(r.Committed))
	for _, o := range r.Committed {
		committed[o.Message] = o
	}
	phantom := map[string]bool{}
	delivered := make(map[string]bool, len(first))
	// Copies are held against the order too: a second delivery must not say
	// anything else than the first.
	for _, m := range r.Stream {
		delivered[m.Message] = true
		if o, ok := committed[m.Message]; !ok || o != m.Order {
			phantom[m.Message] = true
		}
	}
	applied := make(map[string]bool, len(r.Effects))
	for _, e := range r.Effects {
		applied[e.Message] = true
		if o, ok := committed[e.Message]; !ok || o != e {
			phantom[e.Message] = true
		}
	}
	v.Phantoms = int64(len(phantom))
	for id := range committed {
		if !delivered[id] || !applied[id] {
			v.Lost++
		}
	}

	v.OrderViolations = orderViolations(first)
	v.LateCommits = lateCommits(r.Diary, first)
	v.P50, v.P99, v.Rate = speed(r.Diary, first)
	return v
}

// firstDeliveries keeps the first message of each id, in stream order.
func firstDeliveries(stream []Stored) []Stored {
	seen := make(map[string]bool, len(stream))
	var first []Stored
	for _, m := range stream {
		if !seen[m.Message] {
			seen[m.Message] = true
			first = append(first, m)
		}
	}
	return first
}

func orderViolations(first []Stored) (n int64) {
	highest := map[int64]int64{}
	for _, m := range first {
		if m.Number <= highest[m.Customer] {
			n++
			continue
		}
		highest[m.Customer] = m.Number
	}
	return n
}

// lateCommits counts by the clock before Commit: a delivery seen before that
// instant certainly came before the commit. The clock after Commit would also
// count commits that were merely slow to return.
func lateCommits(diary []Entry, first []Stored) (n int64) {
	committing := make(map[string]time.Time, len(diary))
	for _, e := range diary {
		committing[e.Message] = e.Committing
	}
	lanes := map[int64][]Stored{}
	for _, m := range first {
		lanes[m.Lane] = append(lanes[m.Lane], m)
	}
	for _, lane := range lanes {
		slices.SortFunc(lane, func(a, b Stored) int { return int(b.Pos - a.Pos) })
		var earliest time.Time // of the deliveries at higher positions
		for _, m := range lane {
			if c := committing[m.Message]; !c.IsZero() && !earliest.IsZero() && earliest.Before(c) {
				n++
			}
			if earliest.IsZero() || m.At.Before(earliest) {
				earliest = m.At
			}
		}
	}
	return n
}

func speed(diary []Entry, first []Stored) (p50, p99, rate float64) {
	committed := make(map[string]time.Time, len(diary))
	var began time.Time
	for _, e := range diary {
		if !e.Committed.IsZero() {
			committed[e.Message] = e.Committed
		}
		if began.IsZero() || e.Began.Before(began) {
			began = e.Began
		}
	}
	var last time.Time
	var took []time.Duration
	for _, m := range first {
		if m.At.After(last) {
			last = m.At
		}
		if c, ok := committed[m.Message]; ok {
			// Commit is visible to the relay a little before it returns to the
			// producer, so the difference can fall below zero.
			took = append(took, max(0, m.At.Sub(c)))
		}
	}
	slices.Sort(took)
	if d := last.Sub(began); len(first) > 0 && d > 0 {
		rate = round(float64(len(first))/d.Seconds(), 1)
	}
	return percentile(took, 50), percentile(took, 99), rate
}

// percentile is the nearest-rank percentile of sorted durations, in
// milliseconds.
func percentile(sorted []time.Duration, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return round(float64(sorted[max(rank, 1)-1])/float64(time.Millisecond), 2)
}

func round(x float64, digits int) float64 {
	f := math.Pow10(digits)
	return math.Round(x*f) / f
}

// Failures says what is wrong with the run, a line each; none if all is well.
func (v Verdict) Failures() []string {
	var fs []string
	fail := func(format string, args ...any) { fs = append(fs, fmt.Sprintf(format, args...)) }
	for _, c := range []struct {
		name, what string
		n          int64
	}{
		{"lost", "committed orders that are missing in the stream or in the consumer's database", v.Lost},
		{"phantoms", "messages without a committed order", v.Phantoms},
		{"order_violations", "first deliveries out of a customer's order", v.OrderViolations},
		{"dead", "messages given up", v.Dead},
		{"pending_left", "rows left in the outbox", v.PendingLeft},
	} {
		if c.n != 0 {
			fail("%s is %d, must be 0: %s", c.name, c.n, c.what)
		}
	}
	if v.Delivered != v.Committed {
		fail("delivered is %d, committed is %d: they must be equal", v.Delivered, v.Committed)
	}
	if v.Effects != v.Committed {
		fail("effects is %d, committed is %d: they must be equal", v.Effects, v.Committed)
	}
	if v.server && v.Orders >= lateProof && v.LateCommits == 0 {
		fail("late_commits is 0 in %d orders on a server: the run did not meet the case it is there to show; run it again with more --producers and --customers", v.Orders)
	}
	return fs
}

// VerdictError is returned when a run ended and did not hold what it promises.
type VerdictError struct{ Failures []string }

func (e *VerdictError) Error() string {
	return "the demo failed: " + strings.Join(e.Failures, "; ")
}

// ExitCode is the exit status of the program.
func (e *VerdictError) ExitCode() int { return 1 }
