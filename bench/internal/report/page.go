package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Page writes the report as Markdown to path, and its charts and itself into a
// folder of the same name.
func (r *Report) Page(path string) error {
	r.Summarize()
	folder := strings.TrimSuffix(path, filepath.Ext(path))
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var b bytes.Buffer
	r.head(&b)
	r.reach(&b)
	for _, s := range r.Scenarios {
		svg, err := s.chart()
		if err != nil {
			return fmt.Errorf("chart of %s: %w", s.Name, err)
		}
		name := s.Name + ".svg"
		if svg != nil {
			if err := os.WriteFile(filepath.Join(folder, name), svg, 0o644); err != nil {
				return err
			}
		}
		s.section(&b, filepath.Base(folder)+"/"+name, svg != nil)
	}
	elsewhere(&b)
	if err := r.Write(filepath.Join(folder, "report.json")); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func (r *Report) head(b *bytes.Buffer) {
	fmt.Fprintf(b, "# Performance\n\nMade by `make bench` from [report.json](performance/report.json); do not edit. %s, %d repetitions", r.Started.Format("2006-01-02"), r.Repeat)
	if r.Scale != 1 {
		fmt.Fprintf(b, ", **at %g of the full numbers of messages: not for comparison**", r.Scale)
	}
	fmt.Fprintf(b, ", %.0f minutes.\n\n", r.Seconds/60)
	b.WriteString(`All contestants of a table ran in turns, in one process on one machine, over the same server, with bodies of 1 KiB,
through one publisher that decodes every message and checks that it arrives once and, where it has a key, in order. A
run that loses, repeats or reorders is a failure and has no figure. Figures are medians, with the least and the most of
the repetitions; "against" is the median of the ratios within each repetition. Rates depend on the machine and the
moment; ratios and the costs of a message travel. A rate runs from the start of the contestant, connections and leases
included, to its last message. CPU is the seconds of a processor for 1,000 messages, of this process (which has the
publisher and, where one is embedded, the broker) and of all of the server's processes.

Postrider runs with its default options. The limit is a raw read of Postrider's own rows, in pages, by one connection
without lease, order or settling. The usual design claims 500 rows by an UPDATE with a token and SKIP LOCKED, sends
them, and deletes them by the token. Watermill's subscriber reads 1,000 rows a batch, the best for it, straight or under
its forwarder. River has 2,000 workers and a fetch cooldown of 1 ms, the best for it on two cores; it keeps no order.

`)
	b.WriteString("| | |\n|---|---|\n")
	m := r.Machine
	fmt.Fprintf(b, "| machine | %s/%s, %d cores, %s, %d MiB |\n| load average before, after | %s; %s |\n", m.OS, m.Arch, m.Cores, m.CPU, m.MemoryMiB, m.LoadBefore, m.LoadAfter)
	for _, s := range r.Versions {
		fmt.Fprintf(b, "| %s | %s |\n", s.Name, s.Value)
	}
	for _, s := range r.Settings {
		fmt.Fprintf(b, "| `%s` | %s |\n", s.Name, s.Value)
	}
}

func (r *Report) reach(b *bytes.Buffer) {
	b.WriteString("\n## What is to be reached\n\n| pgxstore | must | reach | measured | |\n|---|---|---|---|---|\n")
	for _, t := range targets {
		st, ok := t.value(r)
		if !ok {
			continue
		}
		sign, reach := "at least ", ""
		if t.lower {
			sign = "at most "
		}
		if t.reach != 0 {
			reach = Figure(t.reach)
		}
		fmt.Fprintf(b, "| %s | %s%s | %s | %s | %s |\n", t.text, sign, Figure(t.must), reach, t.figure(st), t.verdict(st.Median))
	}
	if failed := r.Failures(); len(failed) > 0 {
		fmt.Fprintf(b, "\n**%d runs failed:**\n\n", len(failed))
		for _, f := range failed {
			fmt.Fprintf(b, "- %s\n", f)
		}
	}
}

// String is the median with its spread.
func (s Stat) String() string {
	if s.Min == s.Max {
		return Figure(s.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", Figure(s.Median), Figure(s.Min), Figure(s.Max))
}

func (s *Scenario) section(b *bytes.Buffer, chart string, drawn bool) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", s.Title, s.Text)
	if s.Skipped != "" {
		fmt.Fprintf(b, "\nNot run: %s\n", s.Skipped)
	}
	if a := s.Apart; a != nil {
		fmt.Fprintf(b, "\nMeasured by itself: %s, %d repetitions, load average before and after %s; %s.\n", a.Started.Format("2006-01-02"), a.Repeat, a.LoadBefore, a.LoadAfter)
	}
	if drawn {
		fmt.Fprintf(b, "\n![%s: %s](%s)\n", s.Title, s.charted(), chart)
	}
	for _, v := range s.Variants {
		v.table(b)
	}
}

// charted is what the chart shows.
func (s *Scenario) charted() string {
	for _, m := range Metrics {
		if m.Name == s.Chart {
			return m.Title + ", " + m.Unit
		}
	}
	return "messages or transactions a second"
}

// table has a row for each contestant and a column for each metric that one of
// them has. Ratios are to the first contestant.
func (v *Variant) table(b *bytes.Buffer) {
	var used []Metric
	for _, m := range Metrics {
		for _, s := range v.Series {
			if _, ok := s.Stats[m.Name]; ok {
				used = append(used, m)
				break
			}
		}
	}
	if len(used) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| %s |", v.Name)
	rule := "\n|---|"
	for _, m := range used {
		fmt.Fprintf(b, " %s |", strings.TrimSpace(m.Title+" "+m.Unit))
		rule += "---:|"
		if m.Name == Rate && len(v.Series) > 1 {
			b.WriteString(" against the first |")
			rule += "---:|"
		}
	}
	b.WriteString(rule + "\n")
	for _, s := range v.Series {
		fmt.Fprintf(b, "| %s |", s.Contestant)
		for _, m := range used {
			st, ok := s.Stats[m.Name]
			switch {
			case !ok && len(s.Failures) > 0:
				b.WriteString(" failed |")
			case !ok:
				b.WriteString(" |")
			case m.Spread:
				fmt.Fprintf(b, " %s |", st)
			default:
				fmt.Fprintf(b, " %s |", Figure(st.Median))
			}
			if m.Name == Rate && len(v.Series) > 1 {
				cell := ""
				if st, ok := s.Ratios[v.Series[0].Contestant]; ok {
					cell = Figure(st.Median)
				}
				fmt.Fprintf(b, " %s |", cell)
			}
		}
		b.WriteByte('\n')
	}
}

// published are figures of others who could not be run here, as they publish
// them.
var published = [][4]string{
	{"River", "46,000 jobs/s worked", "1M no-op jobs, 8-core laptop, 2,000 workers", "riverqueue.com/docs/benchmarks"},
	{"Graphile Worker", "183,895 jobs/s, 15,607 by default", "no-op, i9-14900K, 4 processes of 24, local queue of 500", "worker.graphile.org/docs/performance"},
	{"pgmq", "30,000 messages/s read", "22-byte messages, 16 vCPU, 32 GB", "tembo.io/blog, 2023"},
	{"efureev/go-outbox", "40,000 to 46,000 messages/s", "a sink that does nothing", "its README"},
	{"namastack-outbox", "7,500 records/s by default, 10,000 tuned", "p99 350 ms, 4 instances, M2 Pro, PostgreSQL 17", "its documentation"},
	{"Debezium", "6,000 to 23,000 events/s", "as measured by a competitor", "README of Sequin"},
}

func elsewhere(b *bytes.Buffer) {
	b.WriteString("\n## Others, as they publish\n\nNot run here: other machines, other rules; compare the shapes.\n\n| | figure | conditions | source |\n|---|---|---|---|\n")
	for _, p := range published {
		fmt.Fprintf(b, "| %s |\n", strings.Join(p[:], " | "))
	}
}
