package report

import "fmt"

// target is a figure that Postrider is to reach.
type target struct {
	text        string
	must, reach float64 // reach 0: none beyond must
	lower       bool    // less is better
	value       func(r *Report) (Stat, bool)
}

const product = "postrider pgxstore"

var targets = []target{
	{text: "drain, against watermill-sql's best", must: 1.1, reach: 1.5, value: drainAgainst("watermill queue", "watermill offsets", "watermill forwarder")},
	{text: "drain, against River", must: 7.5, reach: 9, value: drainAgainst("river")},
	{text: "drain, against claim and delete", must: 2.5, value: drainAgainst("claim and delete")},
	{text: "5 ms a batch, against claim and delete", must: 4, value: against("latency", "5 ms a batch", product, "claim and delete")},
	{text: "drain, of the raw read-only stream", must: 0.45, value: drainAgainst("raw read")},
	{text: "1 ms a message, 1,000 keys, against watermill-sql", must: 50, value: against("latency", "1 ms a message, 1,000 keys", product, "watermill queue")},
	{text: "10 keys, against a claim of one row per key", must: 20, value: against("ordered", "10 keys", product, "claim, one per key")},
	{text: "read of a row with 10 million pending, of that with 10 thousand", must: 1.5, lower: true, value: readGrowth},
	{text: "rate with the horizon held, of that with it free, without keys", must: 0.95, value: horizon("without keys")},
	{text: "the same with 1,000 keys", must: 0.95, value: horizon("1,000 keys")},
	{text: "commit to acknowledgement at half load, p50, ms", must: 3, lower: true, value: metricOf("ack", "50 % of full load", product+", relay woken", "p50")},
	{text: "the same, p99, ms", must: 15, lower: true, value: metricOf("ack", "50 % of full load", product+", relay woken", "p99")},
	{text: "business transactions with a message pipelined, of those without", must: 0.9, value: against("enqueue", "1 message", product+", pipelined", "business alone")},
	{text: "16 producers beside a relay, of those without", must: 0.85, value: against("producers", "16 producers", product+", relay polls", product+", no relay")},
	{text: "64 producers beside a relay, of those without", must: 0.85, value: against("producers", "64 producers", product+", relay polls", product+", no relay")},
	{text: "64 producers that notify the relay, of those that do not", must: 0.95, value: against("producers", "64 producers", product+", relay notified", product+", relay polls")},
	{text: "64 producers that wake the relay in process, of those that do not", must: 0.95, value: against("producers", "64 producers", product+", relay woken", product+", relay polls")},
	{text: "WAL beyond the insert, bytes a message", must: 80, lower: true, value: metricOf("drain", "100,000 pending", product, "wal")},
	{text: "dead tuples a message", must: 1, lower: true, value: metricOf("drain", "100,000 pending", product, "dead_tuples")},
	{text: "statements a message", must: 0.01, lower: true, value: metricOf("drain", "100,000 pending", product, "statements")},
	{text: "SQLite, against claim and delete", must: 1.5, value: against("sqlite", "50,000 pending", "postrider sqlite", "claim and delete")},
	{text: "MariaDB, against claim and delete", must: 2, value: against("mariadb", "50,000 pending", "postrider mariadb", "claim and delete")},
	{text: "MariaDB beside two producers at either isolation level, deadlocks and lock timeouts", lower: true, value: refusals},
	{text: "memory with 10 million pending, MiB", must: 64, reach: 48, lower: true, value: metricOf("backlog", "memory with 10 million pending", product, "peak_mib")},
	{text: "memory with bodies of 16 MiB, MiB", must: 128, lower: true, value: metricOf("memory", "16 MiB bodies", product, "peak_mib")},
}

func against(scenario, variant, a, b string) func(*Report) (Stat, bool) {
	return func(r *Report) (Stat, bool) {
		x, y := r.Find(scenario, variant, a), r.Find(scenario, variant, b)
		if x == nil || y == nil {
			return Stat{}, false
		}
		return ratio(x, y, Rate)
	}
}

// drainAgainst compares with the fastest of others.
func drainAgainst(others ...string) func(*Report) (Stat, bool) {
	return func(r *Report) (Stat, bool) {
		best, fastest := "", -1.0
		for _, o := range others {
			if s := r.Find("drain", "100,000 pending", o); s != nil && s.Stats[Rate].Median > fastest {
				best, fastest = o, s.Stats[Rate].Median
			}
		}
		return against("drain", "100,000 pending", product, best)(r)
	}
}

func metricOf(scenario, variant, contestant, metric string) func(*Report) (Stat, bool) {
	return func(r *Report) (Stat, bool) {
		s := r.Find(scenario, variant, contestant)
		if s == nil {
			return Stat{}, false
		}
		st, ok := s.Stats[metric]
		return st, ok
	}
}

// quotient compares medians of different comparisons: nothing ran in turns.
func quotient(a, b func(*Report) (Stat, bool), r *Report) (Stat, bool) {
	x, okx := a(r)
	y, oky := b(r)
	if !okx || !oky || y.Median == 0 {
		return Stat{}, false
	}
	q := x.Median / y.Median
	return Stat{q, q, q}, true
}

// refusals is the most of any run on MariaDB.
func refusals(r *Report) (most Stat, ok bool) {
	for _, level := range []string{"READ COMMITTED", "REPEATABLE READ"} {
		if st, found := metricOf("mariadb", "two producers, "+level, "postrider mariadb", "refusals")(r); found {
			ok = true
			most = Stat{max(most.Median, st.Max), max(most.Min, st.Max), max(most.Max, st.Max)}
		}
	}
	return most, ok
}

func readGrowth(r *Report) (Stat, bool) {
	return quotient(metricOf("backlog", "10 million pending", product, "read_us"), metricOf("backlog", "10 thousand pending", product, "read_us"), r)
}

func horizon(variant string) func(*Report) (Stat, bool) {
	return func(r *Report) (Stat, bool) {
		return quotient(metricOf("horizon", variant, product+", held", Rate), metricOf("horizon", variant, product+", free", Rate), r)
	}
}

// figure shows as many digits as it takes to see a miss.
func (t target) figure(s Stat) string {
	if t.verdict(s.Median) == missed && Figure(s.Median) == Figure(t.must) {
		return fmt.Sprintf("%.4f (%.4f to %.4f)", s.Median, s.Min, s.Max)
	}
	return s.String()
}

const missed = "**missed**"

// verdict says how a figure stands.
func (t target) verdict(x float64) string {
	meets := func(limit float64) bool {
		if t.lower {
			return x <= limit
		}
		return x >= limit
	}
	switch {
	case t.reach != 0 && meets(t.reach):
		return "reached"
	case meets(t.must):
		return "met"
	}
	return missed
}
