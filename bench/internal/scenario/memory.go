package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/postrider/postrider/bench/internal/contest"
	"github.com/postrider/postrider/bench/internal/meter"
	"github.com/postrider/postrider/bench/internal/report"
)

// ChildCommand is the first argument of the program when it is a relay whose
// memory is measured. What it does comes on standard input.
const ChildCommand = "measured-relay"

// childJob is what a child does.
type childJob struct {
	Contestant, URL, Schema string
	Messages, Keys, Size    int
	Nonce                   uint64
	For                     time.Duration
}

// childResult is what a child found.
type childResult struct {
	Got             int
	Seconds         float64
	Wrong           string
	PeakMiB, EndMiB float64
}

const childLatency = 5 * time.Millisecond

// Child runs a relay for a time, or until it has delivered everything, and
// writes what it found to standard output.
func Child(ctx context.Context) error {
	var job childJob
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		return err
	}
	i := slices.IndexFunc(products, func(m contest.Maker) bool { return m.Name == job.Contestant })
	if i < 0 {
		return fmt.Errorf("no product %q", job.Contestant)
	}
	c, err := products[i].New(ctx, contest.Place{URL: job.URL, Schema: job.Schema, Wire: &meter.Wire{}})
	if err != nil {
		return err
	}
	defer c.Close()
	p := contest.NewPublisher(&contest.Load{Messages: job.Messages, Keys: job.Keys, Size: job.Size, Nonce: job.Nonce})
	p.Resume()
	p.Latency = childLatency
	took, err := runUntil(ctx, p.Done(), job.For, func(ctx context.Context) error { return c.Deliver(ctx, p) })
	if err != nil {
		return err
	}
	res := childResult{Got: p.Got(), Seconds: took.Seconds()}
	if err := p.Err(); err != nil {
		res.Wrong = err.Error()
	}
	peak, now, ok := meter.Memory(os.Getpid())
	if !ok {
		return errors.New("/proc does not tell the memory of a process")
	}
	res.PeakMiB, res.EndMiB = float64(peak)/(1<<20), float64(now)/(1<<20)
	return json.NewEncoder(os.Stdout).Encode(res)
}

// child runs a relay in a process of its own over what is in a place. It returns
// the number of messages that it delivered.
func (r *Runner) child(ctx context.Context, m contest.Maker, place contest.Place, load *contest.Load) (sample, int, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	in, err := json.Marshal(childJob{
		Contestant: m.Name, URL: place.URL, Schema: place.Schema,
		Messages: load.Messages, Keys: load.Keys, Size: load.Size, Nonce: load.Nonce, For: max(r.span(5*time.Second), time.Second),
	})
	if err != nil {
		return nil, 0, err
	}
	cmd := exec.CommandContext(ctx, exe, ChildCommand)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, 0, fmt.Errorf("relay in a process of its own: %w: %s", err, errs.String())
	}
	var res childResult
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		return nil, 0, err
	}
	if res.Wrong != "" {
		return nil, 0, errors.New(res.Wrong)
	}
	return sample{report.Rate: float64(res.Got) / res.Seconds, "peak_mib": res.PeakMiB, "end_mib": res.EndMiB}, res.Got, nil
}

func runMemory(ctx context.Context, r *Runner) error {
	if runtime.GOOS != "linux" {
		r.skip("it needs /proc")
		return nil
	}
	for _, v := range []struct {
		name           string
		messages, size int
	}{
		{"1 KiB bodies", r.scaled(100_000, 500), contest.BodySize},
		{"16 MiB bodies", r.scaled(48, 2), 16 << 20},
	} {
		var es []entry
		for _, m := range products {
			es = append(es, entry{m.Name, func(ctx context.Context) (sample, error) {
				return r.inPlace(ctx, m, 1, func(c contest.Contestant, place contest.Place) (sample, error) {
					load := &contest.Load{Messages: v.messages, Keys: 1000, Size: v.size}
					if err := r.fill(ctx, c, place, load); err != nil {
						return nil, err
					}
					s, got, err := r.child(ctx, m, place, load)
					if err != nil {
						return nil, err
					}
					return s, checkPending(ctx, c, load.Messages-got)
				})
			}})
		}
		if err := r.compare(ctx, v.name, es...); err != nil {
			return err
		}
	}
	return nil
}
