package relay_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/relay"
)

// TestServerCrash kills the database server under a relay: what was committed is
// delivered when the server is back, in order with what comes later.
func TestServerCrash(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		switch e.name {
		case "postgres":
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				c := testenv.PrivatePostgres(t)
				e.dsn = func(testing.TB) string { return c.URL }
				serverCrash(t, e, func(ctx context.Context) error { return c.Stop(ctx, "immediate") }, c.Start)
			})
		case "mysql":
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				m := testenv.PrivateMySQL(t)
				e.dsn = func(testing.TB) string { return m.DSN }
				serverCrash(t, e, m.Crash, m.Start)
			})
		}
	}
}

func serverCrash(t *testing.T, e engine, crash, start func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	g := newRig(t, e, nil, nil)
	lost, once := make(chan struct{}), sync.Once{}
	_, stop := g.start(&relay.Options{TTL: 2 * time.Second, Hooks: relay.Hooks{Store: func(err error) {
		if err != nil {
			once.Do(func() { close(lost) })
		}
	}}})
	committed := 0
	publish := func(n int) {
		t.Helper()
		for range n {
			g.must(g.publish(fmt.Sprint("k", committed%7))(true))
			committed++
		}
	}
	publish(30)
	g.waitAccepted(committed)
	publish(60) // some of them are on their way
	g.must(crash(ctx))
	g.db.SetMaxIdleConns(0) // those of the producer have ended
	select {
	case <-lost:
	case <-ctx.Done():
		t.Fatal("D8: the store hook is silent about a server that is gone")
	}
	g.must(start(ctx))
	publish(30)
	g.waitAccepted(committed)
	for g.pending() > 0 {
		g.must(ctx.Err())
		time.Sleep(20 * time.Millisecond)
	}
	g.must(stop())
	if n := len(g.rec.First()); n != committed {
		t.Errorf("%d of %d messages delivered", n, committed)
	}
	g.inOrder()
}
