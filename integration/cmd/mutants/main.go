// Command mutants takes one safety at a time out of the production source and
// demands that a proof notices: `make mutants`. Each file of
// integration/mutants is a patch with a head that says what it removes, which
// invariant that breaks, and the go test arguments of the proof. Arguments are
// names of mutants; without any, all are tried.
//
// It exits with 1 when a patch does not apply any more, when what it makes does
// not compile, or when the proof does not fail on the invariant named.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/postrider/postrider/integration/testenv"
)

// folder holds the patches.
const folder = "integration/mutants"

func main() {
	short := flag.Bool("short", false, "only the mutants whose proof takes a few seconds")
	jobs := flag.Int("jobs", 2, "mutants at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := testenv.Root()
	if err == nil {
		err = run(ctx, os.Stdout, root, *short, max(*jobs, 1), flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, root string, short bool, jobs int, names []string) error {
	all, err := load(filepath.Join(root, folder))
	if err != nil {
		return err
	}
	list := slices.DeleteFunc(slices.Clone(all), func(m *mutant) bool {
		if len(names) > 0 {
			return !slices.Contains(names, m.name)
		}
		return short && !m.short
	})
	for _, name := range names {
		if !slices.ContainsFunc(list, func(m *mutant) bool { return m.name == name }) {
			return fmt.Errorf("no mutant %q in %s", name, folder)
		}
	}
	dir, err := os.MkdirTemp("", "postrider-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	work := make(chan *mutant)
	var mu sync.Mutex
	var wg sync.WaitGroup
	caught, escaped := 0, []string(nil)
	for i := range min(jobs, len(list)) {
		t := tree{root: root, dir: filepath.Join(dir, fmt.Sprint(i))}
		wg.Go(func() {
			for m := range work {
				began := time.Now()
				seen, err := t.try(ctx, m)
				took := time.Since(began).Round(100 * time.Millisecond)
				mu.Lock()
				switch {
				case ctx.Err() != nil:
				case err != nil:
					fmt.Fprintf(out, "# mutant %s: %v\n", m.name, err)
					escaped = append(escaped, m.name)
				default:
					caught++
					fmt.Fprintf(out, "# mutant %-22s caught in %6v: %s\n", m.name, took, seen)
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range list {
		work <- m
	}
	close(work)
	wg.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted")
	}
	fmt.Fprintf(out, "# mutants caught %d/%d\n", caught, len(list))
	if len(escaped) > 0 {
		slices.Sort(escaped)
		return fmt.Errorf("not caught: %v", escaped)
	}
	return nil
}
