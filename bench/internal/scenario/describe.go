package scenario

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/bench/internal/report"
)

// settings of the server that decide over speed.
var settings = []string{
	"shared_buffers", "fsync", "synchronous_commit", "full_page_writes", "wal_level", "max_wal_size",
	"checkpoint_timeout", "max_connections", "autovacuum", "autovacuum_naptime", "jit",
}

// libraries whose versions matter.
var libraries = []string{
	"github.com/jackc/pgx/v5", "github.com/ThreeDotsLabs/watermill-sql/v4", "github.com/ThreeDotsLabs/watermill",
	"github.com/riverqueue/river", "github.com/nats-io/nats-server/v2", "modernc.org/sqlite",
	"github.com/go-sql-driver/mysql",
}

// Describe begins a report: the machine, the versions, the settings.
func (r *Runner) Describe(ctx context.Context) (*report.Report, error) {
	rep := &report.Report{Started: time.Now().UTC().Truncate(time.Second), Repeat: r.opts.Repeat, Scale: r.opts.Scale, Machine: report.Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), CPU: cpuModel(), MemoryMiB: memoryMiB(), LoadBefore: LoadAverage(),
	}}
	var version string
	if err := r.admin.QueryRow(ctx, `SELECT split_part(current_setting('server_version'), ' ', 1)`).Scan(&version); err != nil {
		return nil, err
	}
	rep.Versions = append(rep.Versions, report.Setting{Name: "PostgreSQL", Value: version}, report.Setting{Name: "Go", Value: runtime.Version()})
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, name := range libraries {
			for _, d := range info.Deps {
				if d.Path == name {
					rep.Versions = append(rep.Versions, report.Setting{Name: name, Value: d.Version})
				}
			}
		}
	}
	for _, name := range settings {
		var value string
		if err := r.admin.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			return nil, err
		}
		rep.Settings = append(rep.Settings, report.Setting{Name: name, Value: value})
	}
	if r.mysql != nil {
		rep.Versions = append(rep.Versions, r.mysql.version)
		rep.Settings = append(rep.Settings, r.mysql.settings...)
	}
	return rep, nil
}

// LoadAverage is the machine's load over 1, 5 and 15 minutes; "" where it does
// not tell.
func LoadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	return strings.Join(f[:min(3, len(f))], " ")
}

func cpuModel() string { return procValue("/proc/cpuinfo", "model name") }

func memoryMiB() int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(procValue("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	return n >> 10
}

// procValue is the first value of a name in a file of "name : value" lines.
func procValue(path, name string) string {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
