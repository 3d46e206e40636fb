package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

// EnginePgBouncer is PgBouncer, as POSTRIDER_TEST_REQUIRE names it.
const EnginePgBouncer = "pgbouncer"

// PgBouncer returns the URL of a new, empty database behind a PgBouncer of the
// test's own in transaction mode, and the URL that goes around it. Both are gone
// when the test ends.
func PgBouncer(tb testing.TB) (through, direct string) {
	tb.Helper()
	direct = Postgres(tb)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	through, end, err := startPgBouncer(ctx, direct)
	if err != nil {
		missing(tb, EnginePgBouncer, err)
	}
	tb.Cleanup(end)
	record(tb, EnginePgBouncer, "transaction mode")
	return through, direct
}

func startPgBouncer(ctx context.Context, server string) (through string, end func(), err error) {
	// Debian keeps it where only root's PATH leads.
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return "", nil, errors.New("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
		}
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", nil, err
	}
	to := fmt.Sprintf("host=%s port=%s user=%s", u.Hostname(), u.Port(), u.User.Username())
	if p, ok := u.User.Password(); ok {
		to += " password=" + p
	}
	var tries []error
	for range 4 {
		port, err := freePort()
		if err != nil {
			return "", nil, err
		}
		config := fmt.Sprintf(`[databases]
* = %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
server_check_delay = 0
ignore_startup_parameters = extra_float_digits
logfile = log
pidfile = pid
`, to, port)
		start := fmt.Sprintf(`printf %%s %s >ini && %s -d ini >out 2>&1 && for i in $(seq 100); do
			[ -s pid ] && break; sleep 0.1; done; [ -s pid ]`, quote(config), quote(bin))
		_, end, err = supervise(ctx, start, `kill -INT "$(cat pid)"; while kill -0 "$(cat pid 2>/dev/null)" 2>/dev/null; do sleep 0.02; done`, true)
		if err == nil {
			u.User, u.Host = url.User(u.User.Username()), fmt.Sprintf("127.0.0.1:%d", port)
			q := u.Query()
			q.Set("sslmode", "disable")
			u.RawQuery = q.Encode()
			return strings.TrimSuffix(u.String(), "?"), end, nil
		}
		tries = append(tries, err)
	}
	return "", nil, fmt.Errorf("start PgBouncer: %w", errors.Join(tries...))
}
