package report

import (
	"fmt"
	"math"
	"strconv"
)

// Metric is something that is measured.
type Metric struct {
	Name, Title, Unit string
	Spread            bool // tables show it with its least and most
}

// Metrics in the order of tables.
var Metrics = []Metric{
	{Rate, "rate", "1/s", true},
	{"messages", "messages", "1/s", false},
	{"first", "first message", "ms", false},
	{"p50", "p50", "ms", true},
	{"p99", "p99", "ms", true},
	{"max", "slowest", "ms", false},
	{"read_us", "read, a row", "us", true},
	{"read_p50", "read p50", "ms", false},
	{"read_p99", "read p99", "ms", false},
	{"client_cpu", "client CPU", "s/1,000", false},
	{"server_cpu", "server CPU", "s/1,000", false},
	{"statements", "statements", "/msg", false},
	{"round_trips", "round trips", "/msg", false},
	{"wal", "WAL", "B/msg", false},
	{"dead_tuples", "dead tuples", "/msg", false},
	{"refusals", "deadlocks, lock timeouts", "", true},
	{"backlog", "left behind", "rows", false},
	{"peak_mib", "peak memory", "MiB", true},
	{"end_mib", "memory at the end", "MiB", false},
	{"last_to_first", "end to start", "", false},
}

// Figure writes a number with three significant digits, or whole.
func Figure(x float64) string {
	a := math.Abs(x)
	switch {
	case a == 0:
		return "0"
	case a >= 999.5:
		return thousands(int64(math.Round(x)))
	case a >= 100:
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	case a >= 1:
		return fmt.Sprintf("%.2f", x)
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
