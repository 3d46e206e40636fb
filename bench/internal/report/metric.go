package report

import (
	"fmt"
	"math"
	"strconv"
)

// Metric is something that is measured.
type Metric struct{ Name, Title, Unit string }

// Metrics in the order of tables.
var Metrics = []Metric{
	{Rate, "rate", "1/s"},
	{"messages", "messages", "1/s"},
	{"first", "first message", "ms"},
	{"p50", "p50", "ms"},
	{"p99", "p99", "ms"},
	{"max", "slowest", "ms"},
	{"read_us", "read, a row", "us"},
	{"read_p50", "read p50", "ms"},
	{"read_p99", "read p99", "ms"},
	{"client_cpu", "client CPU", "s/1,000"},
	{"server_cpu", "server CPU", "s/1,000"},
	{"statements", "statements", "/msg"},
	{"round_trips", "round trips", "/msg"},
	{"wal", "WAL", "B/msg"},
	{"dead_tuples", "dead tuples", "/msg"},
	{"backlog", "left behind", "rows"},
	{"peak_mib", "peak memory", "MiB"},
	{"end_mib", "memory at the end", "MiB"},
	{"last_to_first", "end to start", ""},
}

// Figure writes a number with three significant digits, or whole.
func Figure(x float64) string {
	a := math.Abs(x)
	switch {
	case a == 0:
		return "0"
	case a >= 1000:
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
