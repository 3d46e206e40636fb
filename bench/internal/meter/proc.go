package meter

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Server is a database server on this machine, seen through /proc. The zero value
// knows nothing.
type Server struct{ postmaster int }

// FindServer looks for the server of a backend. local says whether its host is
// this machine.
func FindServer(backend int, local bool) Server {
	if !local {
		return Server{}
	}
	st, ok := readStat(backend)
	if !ok || !strings.HasPrefix(st.name, "postgres") {
		return Server{}
	}
	if parent, ok := readStat(st.parent); !ok || !strings.HasPrefix(parent.name, "postgres") {
		return Server{}
	}
	return Server{postmaster: st.parent}
}

// FindMySQL looks for the server that wrote its process id into a file.
func FindMySQL(pidFile string, local bool) Server {
	b, err := os.ReadFile(pidFile)
	pid, perr := strconv.Atoi(strings.TrimSpace(string(b)))
	if !local || err != nil || perr != nil {
		return Server{}
	}
	if st, ok := readStat(pid); !ok || st.name != "mariadbd" && st.name != "mysqld" {
		return Server{}
	}
	return Server{postmaster: pid}
}

// Rest waits until the server does next to nothing, half a minute at most: what
// one run leaves to be cleaned up is neither the next one's cost nor free.
func (s Server) Rest(ctx context.Context) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		before, ok := s.CPU()
		if !ok {
			return
		}
		time.Sleep(200 * time.Millisecond)
		if after, _ := s.CPU(); after-before <= 10*time.Millisecond {
			return
		}
	}
}

// CPU is the processor time of the server with all its processes, those that
// have ended included, in steps of 10 ms.
func (s Server) CPU() (time.Duration, bool) {
	if s.postmaster == 0 {
		return 0, false
	}
	for {
		own, ok := readStat(s.postmaster)
		if !ok {
			return 0, false
		}
		ticks := own.ticks + own.childTicks + s.children()
		// A process that ended meanwhile is in neither number.
		if again, ok := readStat(s.postmaster); ok && again.childTicks == own.childTicks {
			return time.Duration(ticks) * 10 * time.Millisecond, true
		}
	}
}

func (s Server) children() (ticks int64) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if st, ok := readStat(pid); ok && st.parent == s.postmaster {
			ticks += st.ticks
		}
	}
	return ticks
}

type stat struct {
	name              string
	parent            int
	ticks, childTicks int64
}

func readStat(pid int) (stat, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	// pid (name) state ppid ...: the name may hold anything.
	text := string(b)
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	f := strings.Fields(text[to+1:])
	if from < 0 || to < from || len(f) < 15 {
		return stat{}, false
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(f[i], 10, 64); return n }
	return stat{
		name: text[from+1 : to], parent: int(number(1)),
		ticks: number(11) + number(12), childTicks: number(13) + number(14),
	}, true
}

// Memory is a process's resident memory in bytes: the most so far and now.
func Memory(pid int) (peak, now int64, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmHWM:":
			peak = n << 10
		case "VmRSS:":
			now = n << 10
		}
	}
	return peak, now, peak > 0
}
