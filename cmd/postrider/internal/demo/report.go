package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// introduce says what is about to happen.
func (d *demo) introduce() {
	if d.opts.JSON && !terminal(d.opts.Stderr) {
		return
	}
	o := d.opts
	fmt.Fprintf(o.Stderr, "%s orders of %s customers, %d producers, %d relays, %d %% rolled back, seed %d\n",
		group(int64(o.Orders)), group(int64(o.Customers)), o.Producers, o.Relays, o.Rollback, o.Seed)
	fmt.Fprintf(o.Stderr, "  shop      %s\n  broker    %s\n  consumer  %s\n", d.shop.engine, d.broker, d.consumer.engine)
	if o.Crash {
		fmt.Fprintf(o.Stderr, "  relays are processes; they are killed until %d have died over %d undelivered messages\n", kills, killBacklog)
	}
}

// showProgress prints the state of the run until the returned function is
// called: one line rewritten on a terminal, else a line now and then.
func (d *demo) showProgress(ctx context.Context) (end func()) {
	live := terminal(d.opts.Stderr)
	if !live && d.opts.JSON {
		return func() {}
	}
	every := 2 * time.Second
	if live {
		every = 150 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			line := d.progress(ctx)
			switch {
			case line == "":
			case live:
				fmt.Fprintf(d.opts.Stderr, "\r\x1b[K  %s", line)
			default:
				fmt.Fprintf(d.opts.Stderr, "  %s\n", line)
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		if live {
			fmt.Fprint(d.opts.Stderr, "\r\x1b[K")
		}
	}
}

func (d *demo) progress(ctx context.Context) string {
	pending, err := d.shop.pending(ctx)
	if err != nil {
		return ""
	}
	stored, err := d.broker.stored(ctx)
	if err != nil {
		return ""
	}
	line := fmt.Sprintf("placed %s/%s  committed %s  waiting %s  in stream %s  applied %s",
		group(d.shop.placed.Load()), group(int64(d.opts.Orders)), group(d.shop.committed.Load()), group(pending), group(stored), group(d.consumer.applied.Load()))
	if d.opts.Crash {
		line += fmt.Sprintf("  kills %d/%d", d.killed.Load(), kills)
	}
	return line
}

// print writes the verdict.
func (d *demo) print(v Verdict) error {
	var err error
	if d.opts.JSON {
		err = json.NewEncoder(d.opts.Stdout).Encode(v)
	} else {
		_, err = io.WriteString(d.opts.Stdout, v.text())
	}
	if err != nil {
		return fmt.Errorf("print the verdict: %w", err)
	}
	return nil
}

// tellKept says where to find what was kept.
func (d *demo) tellKept() {
	if !d.keep {
		return
	}
	w := d.opts.Stdout
	if d.opts.JSON {
		w = d.opts.Stderr // the verdict is the last line
	}
	fmt.Fprintf(w, "kept in %s\n", d.dir)
	if d.opts.DB != "" {
		fmt.Fprintf(w, "  drop with: DROP SCHEMA %q, %q CASCADE\n", d.shop.Schema, d.consumer.Schema)
	}
	if d.opts.NATS != "" {
		fmt.Fprintf(w, "  delete with: nats stream rm %s\n", d.broker.name)
	}
}

// text is the verdict for people.
func (v Verdict) text() string {
	var b strings.Builder
	line := func(ok bool, format string, args ...any) {
		mark := "✓"
		if !ok {
			mark = "✗"
		}
		fmt.Fprintf(&b, "%s %s\n", mark, fmt.Sprintf(format, args...))
	}
	line(true, "%s orders placed: %s committed, %s rolled back", group(v.Orders), group(v.Committed), group(v.RolledBack))
	line(v.Delivered == v.Committed && v.Lost == 0, "%s delivered, %s lost", group(v.Delivered), group(v.Lost))
	line(v.Phantoms == 0, "%s delivered or applied without a committed order", group(v.Phantoms))
	line(v.Effects == v.Committed, "%s effects at the consumer; the stream held %s duplicates", group(v.Effects), group(v.Duplicates))
	line(v.OrderViolations == 0, "%s out of a customer's order", group(v.OrderViolations))
	switch {
	case v.LateCommits > 0:
		line(true, "%s committed after a later position of their lane was out", group(v.LateCommits))
	case v.server && v.Orders >= lateProof:
		line(false, "no order committed after a later position of its lane was out")
	}
	line(v.Dead == 0 && v.PendingLeft == 0, "%s dead letters, %s left in the outbox", group(v.Dead), group(v.PendingLeft))
	if v.RelayKills > 0 {
		line(true, "%d relays killed over at least %d undelivered messages each", v.RelayKills, killBacklog)
	}
	fmt.Fprintf(&b, "  commit to broker: p50 %.1f ms, p99 %.1f ms; %s messages a second\n", v.P50, v.P99, group(int64(v.Rate)))
	return b.String()
}

// group writes 12345 as 12,345.
func group(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// terminal tells whether a person is likely to look at w.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}
