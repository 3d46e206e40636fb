package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Cluster is a private PostgreSQL server that a test may stop and start again,
// at the same address. The methods are not for concurrent use.
type Cluster struct {
	URL      string
	bin, dir string
	settings string
	end      func()
}

// PrivatePostgres starts a cluster of the test's own, whatever the environment
// names: what a test does to it hits no other. It is gone when the test ends.
func PrivatePostgres(tb testing.TB) *Cluster {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	bin, err := postgresBinaries(ctx)
	if err != nil {
		missing(tb, EnginePostgres, err)
	}
	c, err := startCluster(ctx, bin)
	if err != nil {
		missing(tb, EnginePostgres, err)
	}
	tb.Cleanup(c.end)
	s, err := checkedPostgres(ctx, &Server{URL: c.URL})
	if err != nil {
		tb.Fatal(err)
	}
	record(tb, EnginePostgres, s.Version)
	return c
}

// Database is the URL of a database of the cluster.
func (c *Cluster) Database(name string) string {
	return strings.Replace(c.URL, "/postgres?", "/"+name+"?", 1)
}

// Stop stops the server in a mode of pg_ctl: fast ends every session, immediate
// is a crash, after which the next start recovers. What was committed survives
// both.
func (c *Cluster) Stop(ctx context.Context, mode string) error {
	return c.control(ctx, "-m", mode, "-w", "stop")
}

// Start starts a stopped server and returns when it accepts connections.
func (c *Cluster) Start(ctx context.Context) error {
	return c.control(ctx, "-w", "-t", "60", "-l", "log", "-o", "-c "+c.settings, "start")
}

// Standby makes a stopped server one that recovers for ever, and so only reads, at the
// next start.
func (c *Cluster) Standby() error {
	return os.WriteFile(filepath.Join(c.dir, "data", "standby.signal"), nil, 0o644)
}

func (c *Cluster) control(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "pg_ctl"), append([]string{"-D", "data"}, args...)...)
	cmd.Dir = c.dir
	err := dropPrivileges(cmd)
	if err == nil {
		err = cmd.Run()
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		return fmt.Errorf("pg_ctl %s: %w: %s", strings.Join(args, " "), err, log[max(0, len(log)-500):])
	}
	return nil
}

// startCluster starts a server of the binaries in the directory bin.
func startCluster(ctx context.Context, bin string) (*Cluster, error) {
	more, err := moreSettings(EnvSettings)
	if err != nil {
		return nil, err
	}
	var tries []error
	for range 4 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		c := &Cluster{bin: bin, URL: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)}
		c.settings = strings.Join(append([]string{
			"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(port), "unix_socket_directories=",
			"fsync=off", "synchronous_commit=on", "full_page_writes=off", "max_connections=300",
			"max_prepared_transactions=20",
		}, more...), " -c ")
		start := fmt.Sprintf(`%[1]s/initdb -D data -U postgres -A trust -E UTF8 --no-locale -N >log 2>&1 &&
			%[1]s/pg_ctl -D data -w -t 60 -l log -o '-c %[2]s' start >/dev/null 2>&1`, quote(bin), c.settings)
		stop := quote(bin) + `/pg_ctl -D data -m immediate -w stop >/dev/null 2>&1`
		if c.dir, c.end, err = supervise(ctx, start, stop, true); err == nil {
			return c, nil
		}
		tries = append(tries, err)
	}
	return nil, fmt.Errorf("start PostgreSQL from %s: %w", bin, errors.Join(tries...))
}

var setting = regexp.MustCompile(`^[a-z_.]+=[A-Za-z0-9_.]+$`)

// moreSettings are those of an environment variable; the last of a name counts.
func moreSettings(env string) ([]string, error) {
	list := strings.Fields(os.Getenv(env))
	for _, s := range list {
		if !setting.MatchString(s) {
			return nil, fmt.Errorf("%s has %q: use name=value of letters, digits, _ and .", env, s)
		}
	}
	return list, nil
}
