package scenario

import "context"

// All are the scenarios, in the order in which they run.
var All = []Scenario{
	{
		Name: "drain", Title: "Drain of a backlog, no-op publisher",
		Text: "100,000 messages of 1 KiB without keys are pending; the publisher answers at once.",
		run:  runDrain,
	},
}

func runDrain(ctx context.Context, r *Runner) error {
	all := drain{messages: r.scaled(100_000, 500)}
	var entries []entry
	for _, m := range products {
		entries = append(entries, r.drains(m, all))
	}
	entries = append(entries, r.drains(readMaker, all), r.drains(deleteMaker, all), r.drains(claimMaker, all),
		r.drains(queueMaker, all), r.drains(offsetsMaker, all), r.drains(forwardMaker, all),
		r.drains(riverMaker, drain{messages: r.scaled(50_000, 500)}))
	return r.compare(ctx, "100,000 pending", entries...)
}
