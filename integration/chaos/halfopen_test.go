//go:build prove && linux

package chaos_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/testenv"
)

// TestHalfOpen leaves the only relay with connections whose other ends have
// vanished without a word, as after a power cut or behind a firewall that
// forgot them. No error will ever come from them: the relay finds out by its
// own time limits.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	for _, line := range []target{databaseLine, brokerLine} {
		t.Run(string(line), func(t *testing.T) {
			t.Parallel()
			dsn, nats := testenv.Postgres(t), testenv.NATS(t)
			g := newRig(t, newSpawner(t), dsn, nats)
			proxies := map[target]*proxy{}
			through := func(at target, s string) string {
				u, err := url.Parse(s)
				g.must(err)
				proxies[at] = newProxy(t, u.Host)
				u.Host = proxies[at].addr()
				return u.String()
			}
			r := g.relay("relay", "--db", through(databaseLine, dsn), "--nats", through(brokerLine, nats),
				"--ttl", ttl.String(), "--poll", "100ms", "--log-level", logLevel())
			const rounds, each = 2, 60
			for i := range rounds {
				limit := patience
				if i > 0 {
					proxies[line].halfOpen()
					if line == databaseLine {
						limit = 10 * ttl
					}
				}
				begun := time.Now()
				for n := range each {
					g.must(g.place(t.Context(), placing{key: fmt.Sprint("k", n%7), orders: 1}))
				}
				if !g.settled(limit) {
					t.Fatalf("round %d: %d rows still pending after %v", i, g.pending(), limit)
				}
				t.Logf("round %d: settled after %v", i, time.Since(begun).Round(time.Millisecond))
			}
			if proxies[line].happened("half-open") == 0 {
				t.Error("no byte went into a dead connection")
			}
			if _, err := r.stop(mostStop); err != nil {
				t.Error(err)
			}
			for _, f := range judge(g.truth()).faults {
				t.Error(f)
			}
		})
	}
}
