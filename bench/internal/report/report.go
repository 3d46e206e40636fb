// Package report is the outcome of a run of the bench: its figures, their
// statistics, and the page made of them.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Report is what one run of the bench found.
type Report struct {
	Started   time.Time
	Seconds   float64
	Repeat    int     // how often each comparison was repeated
	Scale     float64 // of the numbers of messages; 1 is the full size
	Machine   Machine
	Versions  []Setting
	Settings  []Setting // of the PostgreSQL server
	Scenarios []*Scenario
}

// Machine is where it ran.
type Machine struct {
	OS, Arch, CPU string
	Cores         int
	MemoryMiB     int64
	LoadBefore    string // load averages at the start: others may have been busy
	LoadAfter     string
}

// Setting is a name and a value.
type Setting struct{ Name, Value string }

// Scenario is one question.
type Scenario struct {
	Name, Title, Text string
	Chart             string  `json:",omitempty"` // the metric that is drawn; "": the rate; Lines: the samples one after the other
	Step              float64 `json:",omitempty"` // seconds between those samples
	Seconds           float64
	Skipped           string // why it was not run
	Apart             *Apart `json:",omitempty"` // nil: measured with the others
	Variants          []*Variant
}

// Apart is the run of a scenario that was measured by itself, after the others.
type Apart struct {
	Started               time.Time
	Repeat                int
	LoadBefore, LoadAfter string
}

// Variant is one comparison: its contestants ran in turns.
type Variant struct {
	Name   string
	Series []*Series
}

// Series is what one contestant did in a variant.
type Series struct {
	Contestant string
	Samples    []map[string]float64 // by repetition; nil where it failed
	Failures   []string
	Stats      map[string]Stat
	// Ratios of the rate to that of others, each within its repetition.
	Ratios map[string]Stat
}

// Stat is a median and the spread around it.
type Stat struct{ Median, Min, Max float64 }

// StatOf is the statistics of values.
func StatOf(values []float64) Stat {
	if len(values) == 0 {
		return Stat{}
	}
	v := slices.Clone(values)
	slices.Sort(v)
	m := len(v) / 2
	median := v[m]
	if len(v)%2 == 0 {
		median = (v[m-1] + v[m]) / 2
	}
	return Stat{median, v[0], v[len(v)-1]}
}

// Rate is the metric that ratios are made of.
const Rate = "rate"

// Summarize fills in statistics and ratios.
func (r *Report) Summarize() {
	for _, sc := range r.Scenarios {
		for _, v := range sc.Variants {
			for _, s := range v.Series {
				s.summarize(v)
			}
		}
	}
}

func (s *Series) summarize(v *Variant) {
	values := map[string][]float64{}
	for _, sample := range s.Samples {
		for metric, x := range sample {
			values[metric] = append(values[metric], x)
		}
	}
	s.Stats, s.Ratios = map[string]Stat{}, map[string]Stat{}
	for metric, xs := range values {
		s.Stats[metric] = StatOf(xs)
	}
	for _, other := range v.Series {
		if other == s {
			continue
		}
		if st, ok := ratio(s, other, Rate); ok {
			s.Ratios[other.Contestant] = st
		}
	}
}

// ratio compares two series, repetition by repetition.
func ratio(a, b *Series, metric string) (Stat, bool) {
	var xs []float64
	for i := range min(len(a.Samples), len(b.Samples)) {
		x, okx := a.Samples[i][metric]
		y, oky := b.Samples[i][metric]
		if okx && oky && y != 0 {
			xs = append(xs, x/y)
		}
	}
	return StatOf(xs), len(xs) > 0
}

// Failures lists everything that failed.
func (r *Report) Failures() (all []string) {
	for _, sc := range r.Scenarios {
		for _, v := range sc.Variants {
			for _, s := range v.Series {
				for _, f := range s.Failures {
					all = append(all, fmt.Sprintf("%s, %s, %s: %s", sc.Name, v.Name, s.Contestant, f))
				}
			}
		}
	}
	return all
}

// Add puts the scenarios of another run among those of r, which go if they have
// the same names, and notes the versions and settings that are new.
func (r *Report) Add(other *Report) error {
	if r.Machine.CPU != other.Machine.CPU || r.Machine.Cores != other.Machine.Cores || r.Scale != other.Scale {
		return fmt.Errorf("the report is of %d cores of %q at scale %g, the run of %d cores of %q at scale %g: measure all of it again",
			r.Machine.Cores, r.Machine.CPU, r.Scale, other.Machine.Cores, other.Machine.CPU, other.Scale)
	}
	for _, sc := range other.Scenarios {
		sc.Apart = &Apart{other.Started, other.Repeat, other.Machine.LoadBefore, other.Machine.LoadAfter}
		i := slices.IndexFunc(r.Scenarios, func(s *Scenario) bool { return s.Name == sc.Name })
		if i < 0 {
			r.Scenarios = append(r.Scenarios, sc)
			continue
		}
		r.Scenarios[i] = sc
	}
	r.Versions, r.Settings = addSettings(r.Versions, other.Versions), addSettings(r.Settings, other.Settings)
	return nil
}

func addSettings(to, more []Setting) []Setting {
	for _, s := range more {
		if !slices.ContainsFunc(to, func(t Setting) bool { return t.Name == s.Name }) {
			to = append(to, s)
		}
	}
	return to
}

// Find returns a series; nil if there is none.
func (r *Report) Find(scenario, variant, contestant string) *Series {
	for _, sc := range r.Scenarios {
		for _, v := range sc.Variants {
			for _, s := range v.Series {
				if sc.Name == scenario && v.Name == variant && s.Contestant == contestant {
					return s
				}
			}
		}
	}
	return nil
}

// Write writes the report as JSON.
func (r *Report) Write(path string) error {
	r.Summarize()
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// Read reads a report.
func Read(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}
