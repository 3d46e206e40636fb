// Command bench measures Postrider beside its rivals, its limit and the usual
// design, in one run on one machine, and checks that every message arrives once
// and in order: a run that loses, repeats or reorders is a failure, not a figure.
//
//	go run ./bench -db postgres://user@host/empty_database -scenario all -out report.json
//	go run ./bench -scenario mariadb -into docs/performance/report.json
//	go run ./bench -page docs/performance.md -out report.json
//
// It wants a database of its own and refuses one that holds anything it did not
// make; MariaDB is measured where a server is named. Exit status 1: something failed; 2: it was called wrongly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/bench/internal/scenario"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == scenario.ChildCommand {
		if err := scenario.Child(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type flags struct {
	db, mysql, scenarios, only, out, into, page, profile string
	repeat                                               int
	scale                                                float64
	list                                                 bool
}

func parse(args []string, errs io.Writer) (flags, error) {
	var f flags
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(errs)
	fs.StringVar(&f.db, "db", os.Getenv("POSTRIDER_TEST_POSTGRES"), "`URL` of an empty PostgreSQL database; defaults to $POSTRIDER_TEST_POSTGRES")
	fs.StringVar(&f.mysql, "mysql", os.Getenv("POSTRIDER_TEST_MYSQL"), "`URL` of a MySQL or MariaDB server, mysql://user:password@host:3306/database; the database is to be empty and defaults to postrider_bench, the URL to $POSTRIDER_TEST_MYSQL")
	fs.StringVar(&f.scenarios, "scenario", "all", "scenarios, separated by commas, or all")
	fs.StringVar(&f.only, "only", "", "contestants: parts of their names, separated by commas; all by default")
	fs.StringVar(&f.out, "out", "report.json", "`file` of the report")
	fs.StringVar(&f.into, "into", "", "the report is that in this `file`, with the scenarios of this run in the place of its own and a note that they were measured by themselves")
	fs.StringVar(&f.page, "page", "", "make this Markdown `file`, with charts beside it, of the report in -out, and measure nothing")
	fs.StringVar(&f.profile, "cpuprofile", "", "`directory` for a CPU profile of each run of Postrider")
	fs.IntVar(&f.repeat, "repeat", 5, "repetitions of each comparison")
	fs.Float64Var(&f.scale, "scale", 1, "numbers of messages and times, as a part of the full ones")
	fs.BoolVar(&f.list, "list", false, "list the scenarios")
	if err := fs.Parse(args); err != nil {
		return f, flag.ErrHelp
	}
	switch {
	case fs.NArg() > 0:
		return f, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case f.into != "" && f.only != "":
		return f, fmt.Errorf("-into %s takes whole scenarios: leave -only out", f.into)
	case f.repeat < 1 || f.scale <= 0 || f.scale > 1:
		return f, fmt.Errorf("-repeat %d, -scale %g: use 1 or more, and more than 0 to 1", f.repeat, f.scale)
	}
	return f, nil
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	f, err := parse(args, progress)
	if err != nil {
		return err
	}
	switch {
	case f.list:
		for _, s := range scenario.All {
			fmt.Fprintf(out, "%-12s %s\n", s.Name, s.Title)
		}
		return nil
	case f.page != "":
		r, err := report.Read(f.out)
		if err != nil {
			return err
		}
		return r.Page(f.page)
	case f.db == "":
		return errors.New("-db is missing: give the URL of an empty PostgreSQL database")
	}
	chosen, err := choose(f)
	if err != nil {
		return err
	}
	return measure(ctx, f, chosen, progress)
}

func choose(f flags) (chosen []scenario.Scenario, err error) {
	names := split(f.scenarios)
	for _, s := range scenario.All {
		if i := slices.Index(names, s.Name); i >= 0 {
			names = slices.Delete(names, i, i+1)
		} else if f.scenarios != "all" {
			continue
		}
		chosen = append(chosen, s)
	}
	if f.scenarios != "all" && len(names) > 0 {
		return nil, fmt.Errorf("no scenario %q: -list shows them", names)
	}
	return chosen, nil
}

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func measure(ctx context.Context, f flags, chosen []scenario.Scenario, progress io.Writer) (err error) {
	began := time.Now()
	if !slices.ContainsFunc(chosen, func(s scenario.Scenario) bool { return s.MySQL }) {
		f.mysql = ""
	}
	r, err := scenario.Open(ctx, scenario.Options{
		URL: f.db, MySQL: f.mysql, Repeat: f.repeat, Scale: f.scale, Only: split(f.only), CPUProfile: f.profile, Progress: progress,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	rep, err := r.Describe(ctx)
	if err != nil {
		return err
	}
	for _, s := range chosen {
		fmt.Fprintf(progress, "# %s: %s\n", s.Name, s.Title)
		rep.Scenarios = append(rep.Scenarios, r.Run(ctx, s))
		rep.Seconds = time.Since(began).Seconds()
		rep.Machine.LoadAfter = scenario.LoadAverage()
		if err := rep.Write(f.out); err != nil { // a run that is broken off has its report
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if failed := rep.Failures(); len(failed) > 0 {
		return fmt.Errorf("%d failures:\n%s", len(failed), strings.Join(failed, "\n"))
	}
	if f.into == "" {
		return nil
	}
	whole, err := report.Read(f.into)
	if err != nil {
		return err
	}
	if err := whole.Add(rep); err != nil {
		return err
	}
	return whole.Write(f.out)
}
