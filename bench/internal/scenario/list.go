package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/bench/internal/contest"
	"github.com/postrider/postrider/bench/internal/report"
)

// All are the scenarios, in the order in which they run.
var All = []Scenario{
	{
		Name: "drain", Title: "Drain of a backlog",
		Text: "100,000 messages without keys are pending; the publisher answers at once.",
		run:  runDrain,
	}, {
		Name: "latency", Title: "A publisher that takes its time",
		Text: "50,000 messages are pending. The publisher answers each message by itself, or each batch as a whole, after 1 to 20 ms. " +
			"Contestants that send one message at a time get as few messages as they need for a figure.",
		run: runLatency,
	}, {
		Name: "ordered", Title: "Order per key",
		Text: "100,000 messages with ordering keys are pending; the publisher answers at once and checks the order of each key. " +
			"One hot key has half of the messages. A blocked key has 100,000 messages of which the publisher refuses the first; what counts is 20,000 messages of 1,000 other keys behind them. " +
			"The claim of one row per key is stopped after three seconds.",
		run: runOrdered,
	}, {
		Name: "sqlite", Title: "SQLite",
		Text: "50,000 messages are pending in a SQLite file in WAL mode, synchronous NORMAL; the publisher answers at once.",
		run:  runSQLite,
	}, {
		Name: "mariadb", Title: "MariaDB", MySQL: true,
		Text: "50,000 messages are pending in MariaDB, which syncs its log at every commit; the publisher answers at once. " +
			"Claim and delete takes two statements to claim here, SELECT with SKIP LOCKED and UPDATE, at READ COMMITTED. " +
			"Two producers commit further messages meanwhile, one in each transaction, as fast as they can, in sessions whose default is either isolation level; " +
			"deadlocks and lock wait timeouts are those of all connections. WAL is the redo log.",
		run: runMariaDB,
	}, {
		Name: "relays", Title: "Several relays",
		Text: "100,000 messages without keys are pending; relays in one process share the lanes.",
		run:  runRelays,
	}, {
		Name: "producers", Title: "Producers beside a running relay",
		Text: "Each producer commits transactions with one keyed message as fast as it can, for three seconds; the rate is that of the transactions. " +
			"The relay is not there, polls, is woken in process after each commit, or is notified through the database. " +
			"Claim and delete does not keep the order of keys here, where transactions commit out of order: of it only that each message arrives once is checked.",
		run: runProducers,
	}, {
		Name: "enqueue", Title: "Enqueue inside a business transaction",
		Text: "16 workers commit transactions that insert one row and update another, four round trips, for one and a half seconds; the rate is that of the transactions. " +
			"Messages are added in a round trip of their own, or pipelined with the last business statement. Costs are those of a transaction.",
		run: runEnqueue,
	}, {
		Name: "ack", Title: "From commit to acknowledgement", Chart: "p99",
		Text: "16 producers commit keyed messages at a part of the rate that producers, relay and an embedded NATS JetStream reach together; " +
			"measured is the time from the end of the commit to the acknowledgement by NATS, once the relay has its lanes.",
		run: runAck,
	}, {
		Name: "nats", Title: "A real broker",
		Text: "50,000 messages with 1,000 keys are pending and go to an embedded NATS JetStream, a file store in this process. The stream is read back and checked. " +
			"NATS alone is the same client publishing the same messages without a database.",
		run: runNATS,
	}, {
		Name: "otherdb", Title: "An open write transaction in another database",
		Text: "100,000 messages are pending while a transaction that has written stays open in another database of the server. " +
			"A contestant that waits for it is stopped after five seconds.",
		run: runOtherDatabase,
	}, {
		Name: "ahead", Title: "Future and dead messages in front",
		Text: "100,000 messages are due while a million scheduled and a million dead ones are there, and without them.",
		run:  runAhead,
	}, {
		Name: "horizon", Title: "The MVCC horizon held", Chart: report.Lines,
		Text: "A snapshot stays open for two minutes while a loader keeps up to 20,000 messages pending; each figure is of five seconds. " +
			"end to start is the mean rate of the last quarter against that of the first.",
		run: runHorizon,
	}, {
		Name: "memory", Title: "Memory of a relay", Chart: "peak_mib",
		Text: "The relay runs in a process of its own, with a publisher that answers after 5 ms; peak memory is the most that was resident.",
		run:  runMemory,
	}, {
		Name: "backlog", Title: "Backlogs of 10 thousand to 10 million", Chart: "read_us",
		Text: "Loaded once by COPY, with 100,000 keys. A read is that of all lanes, 32 rows each, over the first 10,000 rows; the rate is that of the first 10,000 messages. " +
			"The relay's memory is measured with 10 million pending.",
		run: runBacklog,
	},
}

func (r *Runner) all(d drain, makers ...contest.Maker) (es []entry) {
	for _, m := range makers {
		es = append(es, r.drains(m, d))
	}
	return es
}

func runDrain(ctx context.Context, r *Runner) error {
	d := drain{messages: r.scaled(100_000, 500)}
	es := r.all(d, products...)
	es = append(es, r.all(d, readMaker, deleteMaker, claimMaker, queueMaker, offsetsMaker, forwardMaker)...)
	d.messages /= 2
	return r.compare(ctx, "100,000 pending", append(es, r.drains(riverMaker, d))...)
}

func runLatency(ctx context.Context, r *Runner) error {
	for _, perBatch := range []bool{false, true} {
		for _, ms := range []int{1, 2, 5, 20} {
			d := drain{messages: r.scaled(50_000, 500), latency: time.Duration(ms) * time.Millisecond, perBatch: perBatch}
			es := append(r.all(d, products...), r.drains(claimMaker, d))
			name := fmt.Sprintf("%d ms a batch", ms)
			if !perBatch {
				name = fmt.Sprintf("%d ms a message", ms)
				serial := d
				serial.messages = r.scaled(2000/ms, 10)
				es = append(es, r.drains(queueMaker, serial))
				if ms == 1 {
					es = append(es, r.drains(riverMaker, d.of(r.scaled(20_000, 500))))
				}
			}
			if err := r.compare(ctx, name, es...); err != nil {
				return err
			}
		}
	}
	d := drain{messages: r.scaled(50_000, 500), keys: 1000, latency: time.Millisecond}
	es := append(r.all(d, products...), r.drains(queueMaker, d.of(r.scaled(2000, 10))), r.drains(inOrderMaker, d.within(r.span(3*time.Second))))
	return r.compare(ctx, "1 ms a message, 1,000 keys", es...)
}

// of is the same with another number of messages.
func (d drain) of(messages int) drain {
	d.messages = messages
	return d
}

// within is the same with an end.
func (d drain) within(limit time.Duration) drain {
	d.limit = limit
	return d
}

func runOrdered(ctx context.Context, r *Runner) error {
	n := r.scaled(100_000, 500)
	hot := func(i int) int { return (i % 2) * (1 + i/2%999) }
	for _, v := range []struct {
		name  string
		keys  int
		keyOf func(int) int
	}{{"1 key", 1, nil}, {"10 keys", 10, nil}, {"1,000 keys", 1000, nil}, {"100,000 keys", 100_000, nil}, {"one hot key", 1000, hot}} {
		d := drain{messages: n, keys: v.keys, keyOf: v.keyOf}
		es := append(r.all(d, products...), r.drains(inOrderMaker, d.within(r.span(3*time.Second))))
		if v.keys == 10 {
			es = append(es, r.drains(queueMaker, d))
		}
		if err := r.compare(ctx, v.name, es...); err != nil {
			return err
		}
	}
	others := r.scaled(20_000, 500)
	d := drain{
		messages: n + others, keys: 1001, enough: others,
		refuse: func(i int) bool { return i == 0 },
		keyOf: func(i int) int {
			if i < n {
				return 0
			}
			return 1 + i%1000
		},
	}
	return r.compare(ctx, "one blocked key", append(r.all(d, products...), r.drains(inOrderMaker, d.within(r.span(3*time.Second))))...)
}

func runSQLite(ctx context.Context, r *Runner) error {
	d := drain{messages: r.scaled(50_000, 500)}
	return r.compare(ctx, "50,000 pending", r.all(d, sqliteMaker, claimSQLiteMaker)...)
}

func runRelays(ctx context.Context, r *Runner) error {
	for _, latency := range []time.Duration{0, 5 * time.Millisecond} {
		name := "no-op"
		if latency > 0 {
			name = "5 ms a batch"
		}
		var es []entry
		for _, relays := range []int{1, 3} {
			d := drain{messages: r.scaled(100_000, 500), latency: latency, perBatch: true, relays: relays}
			for _, m := range products {
				es = append(es, r.drains(named(m, fmt.Sprintf("%d", relays)), d))
			}
		}
		if err := r.compare(ctx, name, es...); err != nil {
			return err
		}
	}
	return nil
}
