package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStatOf(t *testing.T) {
	t.Parallel()
	if got, want := StatOf([]float64{5, 1, 3}), (Stat{3, 1, 5}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := StatOf([]float64{4, 1, 3, 2}), (Stat{2.5, 1, 4}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// Ratios are taken within a repetition, and one that failed has none.
func TestRatios(t *testing.T) {
	t.Parallel()
	r := sampleReport()
	r.Summarize()
	if got, want := r.Find("drain", "100,000 pending", product).Ratios["river"], (Stat{6, 4, 8}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func sampleReport() *Report {
	return &Report{Repeat: 3, Scale: 1, Scenarios: []*Scenario{{Name: "drain", Title: "Drain", Variants: []*Variant{{Name: "100,000 pending", Series: []*Series{
		{Contestant: product, Samples: []map[string]float64{{Rate: 40, "wal": 66}, nil, {Rate: 16, "wal": 90}}, Failures: []string{"repetition 2: lost"}},
		{Contestant: "river", Samples: []map[string]float64{{Rate: 10}, {Rate: 3}, {Rate: 2}}},
	}}}}}}
}

func TestPage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "performance.md")
	if err := sampleReport().Page(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| drain, against River | at least 7.50 | 9.00 | 6.00 (4.00 to 8.00) | **missed** |",
		"| WAL beyond the insert, bytes a message | at most 80.0 |  | 78.0 (66.0 to 90.0) | met |",
		"repetition 2: lost",
		"](performance/drain.svg)",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if _, err := Read(filepath.Join(filepath.Dir(path), "performance", "report.json")); err != nil {
		t.Error(err)
	}
}

// A scenario of a later run takes the place of the earlier one, and says so; a
// run on another machine is refused.
func TestAdd(t *testing.T) {
	t.Parallel()
	r, later := sampleReport(), sampleReport()
	r.Versions, later.Versions = []Setting{{"Go", "1"}}, []Setting{{"Go", "1"}, {"MariaDB", "10.11"}}
	later.Scenarios[0].Title = "Drain again"
	later.Scenarios = append(later.Scenarios, &Scenario{Name: "mariadb", Title: "MariaDB"})
	later.Machine.LoadBefore = "0.10"
	if err := r.Add(later); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "performance.md")
	if err := r.Page(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{
		"## Drain again\n": 1, "## Drain\n": 0, "## MariaDB\n": 1, "| Go | 1 |": 1, "| MariaDB | 10.11 |": 1,
		"Measured by itself: 0001-01-01, 3 repetitions, load average before and after 0.10;": 2,
	} {
		if got := strings.Count(string(b), want); got != times {
			t.Errorf("the page has %q %d times, want %d", want, got, times)
		}
	}
	later.Machine.Cores = 64
	if err := r.Add(later); err == nil || !strings.Contains(err.Error(), "64 cores") {
		t.Errorf("a run on another machine: %v", err)
	}
}

func TestFigure(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0", 1234567: "1,234,567", -1000: "-1,000", 999.6: "1,000", 12.34: "12.3", 1.5: "1.50", 0.0033: "0.0033"} {
		if got := Figure(x); got != want {
			t.Errorf("%g is written %q, want %q", x, got, want)
		}
	}
}

// A figure that misses by less than its digits show is written with more.
func TestNarrowMiss(t *testing.T) {
	t.Parallel()
	at := target{must: 1, lower: true}
	for x, want := range map[float64]string{1.0040: "1.0040 (1.0040 to 1.0040)", 1: "1.00", 1.2: "1.20"} {
		if got := at.figure(Stat{Median: x, Min: x, Max: x}); got != want {
			t.Errorf("%g is written %q, want %q", x, got, want)
		}
	}
}
