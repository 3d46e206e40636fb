package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/bench/internal/contest"
	"github.com/postrider/postrider/bench/internal/meter"
	"github.com/postrider/postrider/bench/internal/report"
)

// Options of a run.
type Options struct {
	URL        string // PostgreSQL
	MySQL      string // URL of a MySQL or MariaDB server; "": none
	Repeat     int
	Scale      float64  // of the numbers of messages and the times
	Only       []string // parts of the names of contestants; empty: all
	CPUProfile string   // directory for a profile of each run of the product
	Progress   io.Writer
}

// Scenario is one question.
type Scenario struct {
	Name, Title, Text string
	// Chart is the metric of its chart; see report.Scenario.
	Chart string
	// MySQL: it runs on the MySQL server.
	MySQL bool
	run   func(ctx context.Context, r *Runner) error
}

// Runner asks the questions of one run, one after the other.
type Runner struct {
	opts          Options
	admin         *pgx.Conn
	meter         *meter.Meter
	mysql         *mysqlServer // nil: none
	dir           string
	now           *report.Scenario
	serial        int
	mayCheckpoint bool
}

// mark is the comment of every schema that the bench makes, so that it knows
// them again.
const mark = "made by the Postrider bench, which drops it"

// Open connects, and refuses a database that holds anything it did not make.
func Open(ctx context.Context, o Options) (*Runner, error) {
	conn, err := pgx.Connect(ctx, o.URL)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "postrider-bench-")
	if err != nil {
		return nil, err
	}
	r := &Runner{opts: o, admin: conn, dir: dir, meter: &meter.Meter{Wire: &meter.Wire{}, Conn: conn}}
	if err := r.own(ctx); err != nil {
		r.Close()
		return nil, err
	}
	if o.MySQL != "" {
		if r.mysql, err = openMySQL(ctx, o.MySQL); err != nil {
			r.Close()
			return nil, err
		}
	}
	var backend int
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		r.Close()
		return nil, err
	}
	r.meter.Server = meter.FindServer(backend, contest.Local(o.URL))
	_, err = conn.Exec(ctx, `CHECKPOINT`)
	r.mayCheckpoint = err == nil
	return r, nil
}

// Close drops what the run made.
func (r *Runner) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := errors.Join(r.drop(ctx), r.admin.Close(ctx), os.RemoveAll(r.dir))
	if r.mysql != nil {
		err = errors.Join(err, r.mysql.close(ctx))
	}
	return err
}

func (r *Runner) own(ctx context.Context) error {
	var foreign *string
	err := r.admin.QueryRow(ctx, `SELECT string_agg(what, ', ') FROM (
		SELECT 'schema ' || n.nspname AS what FROM pg_namespace n
		 WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'public') AND obj_description(n.oid, 'pg_namespace') IS DISTINCT FROM $1
		UNION ALL SELECT 'relation public.' || relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
		UNION ALL SELECT 'function public.' || proname FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
		   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
		LIMIT 5) x`, mark).Scan(&foreign)
	if err != nil {
		return err
	}
	if foreign != nil {
		return fmt.Errorf("the database holds what the bench did not make (%s): give it an empty database of its own", *foreign)
	}
	return r.drop(ctx)
}

// drop removes every schema of the bench, an earlier run's too.
func (r *Runner) drop(ctx context.Context) error {
	rows, err := r.admin.Query(ctx, `SELECT nspname FROM pg_namespace WHERE obj_description(oid, 'pg_namespace') = $1`, mark)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, n := range names {
		err = errors.Join(err, r.dropSchema(ctx, n))
	}
	return err
}

func (r *Runner) dropSchema(ctx context.Context, name string) error {
	_, err := r.admin.Exec(ctx, `DROP SCHEMA IF EXISTS `+pgx.Identifier{name}.Sanitize()+` CASCADE`)
	return err
}

// place makes an empty place and returns how to leave it.
func (r *Runner) place(ctx context.Context) (contest.Place, func() error, error) {
	r.serial++
	name := fmt.Sprintf("bench_%d", r.serial)
	p := contest.Place{URL: r.opts.URL, Schema: name, Wire: r.meter.Wire, Dir: filepath.Join(r.dir, name)}
	leave := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return errors.Join(r.dropSchema(ctx, name), os.RemoveAll(p.Dir))
	}
	_, err := r.admin.Exec(ctx, `CREATE SCHEMA `+name+`; COMMENT ON SCHEMA `+name+` IS '`+mark+`'`)
	if err == nil {
		err = os.Mkdir(p.Dir, 0o700)
	}
	if err != nil {
		return p, leave, errors.Join(err, leave())
	}
	return p, leave, nil
}

// settle brings the tables of a place into the same state for everybody: hint
// bits set, statistics fresh, and no full-page images to come.
func (r *Runner) settle(ctx context.Context, p contest.Place) error {
	rows, err := r.admin.Query(ctx, `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = $1`, p.Schema)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		return err
	}
	_, err = r.admin.Exec(ctx, `VACUUM (ANALYZE) `+strings.Join(tables, ", "))
	return err
}

// checkpoint is done before rows are loaded: their pages are logged whole then,
// not while a run is measured.
func (r *Runner) checkpoint(ctx context.Context) error {
	if !r.mayCheckpoint {
		return nil
	}
	_, err := r.admin.Exec(ctx, `CHECKPOINT`)
	return err
}

// Run asks one question.
func (r *Runner) Run(ctx context.Context, s Scenario) *report.Scenario {
	began := time.Now()
	r.now = &report.Scenario{Name: s.Name, Title: s.Title, Text: s.Text, Chart: s.Chart}
	if err := s.run(ctx, r); err != nil {
		r.fail("", "", err)
	}
	r.now.Seconds = time.Since(began).Seconds()
	return r.now
}

func (r *Runner) fail(variant, contestant string, err error) {
	s := r.series(variant, contestant)
	s.Failures = append(s.Failures, err.Error())
	r.say("FAILED %s %s %s: %v", r.now.Name, variant, contestant, err)
}

func (r *Runner) say(format string, args ...any) {
	fmt.Fprintf(r.opts.Progress, format+"\n", args...)
}

// skip notes why a scenario is not run.
func (r *Runner) skip(why string) { r.now.Skipped = why; r.say("%s: skipped: %s", r.now.Name, why) }

func (r *Runner) series(variant, contestant string) *report.Series {
	i := slices.IndexFunc(r.now.Variants, func(v *report.Variant) bool { return v.Name == variant })
	if i < 0 {
		i = len(r.now.Variants)
		r.now.Variants = append(r.now.Variants, &report.Variant{Name: variant})
	}
	v := r.now.Variants[i]
	for _, s := range v.Series {
		if s.Contestant == contestant {
			return s
		}
	}
	s := &report.Series{Contestant: contestant}
	v.Series = append(v.Series, s)
	return s
}

// entry is one contestant of a comparison.
type entry struct {
	name string
	run  func(ctx context.Context) (sample, error)
}

// sample is what one run measured.
type sample = map[string]float64

// compare runs the entries in turns, each repetition starting with another.
func (r *Runner) compare(ctx context.Context, variant string, entries ...entry) error {
	entries = slices.DeleteFunc(entries, func(e entry) bool {
		return len(r.opts.Only) > 0 && !slices.ContainsFunc(r.opts.Only, func(part string) bool { return strings.Contains(e.name, part) })
	})
	for _, e := range entries {
		r.series(variant, e.name) // in this order in the report
	}
	for rep := range r.opts.Repeat {
		for i := range entries {
			e := entries[(i+rep)%len(entries)]
			if ctx.Err() != nil {
				return ctx.Err()
			}
			runtime.GC()
			got, err := r.profiled(variant, e, rep, func() (sample, error) { return e.run(ctx) })
			s := r.series(variant, e.name)
			for len(s.Samples) < rep {
				s.Samples = append(s.Samples, nil)
			}
			if err != nil {
				r.fail(variant, e.name, fmt.Errorf("repetition %d: %w", rep+1, err))
				got = nil
			}
			s.Samples = append(s.Samples, got)
			r.say("%-10s %-22s %-24s %d/%d %s", r.now.Name, variant, e.name, rep+1, r.opts.Repeat, brief(got))
		}
	}
	return nil
}

func (r *Runner) profiled(variant string, e entry, rep int, run func() (sample, error)) (sample, error) {
	if r.opts.CPUProfile == "" || !strings.HasPrefix(e.name, "postrider") {
		return run()
	}
	if err := os.MkdirAll(r.opts.CPUProfile, 0o777); err != nil {
		return nil, err
	}
	clean := strings.NewReplacer(" ", "-", ",", "", "/", "-")
	f, err := os.Create(filepath.Join(r.opts.CPUProfile, clean.Replace(fmt.Sprintf("%s_%s_%s_%d.pprof", r.now.Name, variant, e.name, rep+1))))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	defer pprof.StopCPUProfile()
	return run()
}

func brief(s sample) string {
	var out []string
	for _, m := range report.Metrics {
		if x, ok := s[m.Name]; ok {
			out = append(out, fmt.Sprintf("%s=%s", m.Name, report.Figure(x)))
		}
	}
	return strings.Join(out, " ")
}

// scaled is a number at the run's scale, at least least.
func (r *Runner) scaled(n, least int) int {
	return max(int(float64(n)*r.opts.Scale), least)
}

// span is a duration at the run's scale, at least 100 ms.
func (r *Runner) span(d time.Duration) time.Duration {
	return max(time.Duration(float64(d)*r.opts.Scale), 100*time.Millisecond)
}
