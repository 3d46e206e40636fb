package pgxstore_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
)

// lines are connections whose other ends can vanish without a word: from then on
// what is sent goes nowhere, and nothing comes.
type lines struct{ dialled, vanished atomic.Int64 }

type line struct {
	net.Conn
	l  *lines
	no int64
}

func (l *lines) vanish() { l.vanished.Store(l.dialled.Load()) }

func (c line) Write(p []byte) (int, error) {
	if c.no <= c.l.vanished.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestVanishedLineLeavesThePool: a session whose line has vanished takes no
// place in the pool once it is closed, however long its server is waited for.
func TestVanishedLineLeavesThePool(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(testenv.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 2
	var l lines
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return line{c, &l, l.dialled.Add(1)}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := newStore(t, pool, nil)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ses, err := s.LaneSession(t.Context(), "lease")
		if err != nil {
			t.Fatal(err)
		}
		l.vanish()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = ses.AcquireLanes(ctx, outbox.LaneRequest{Owner: outbox.NewID(), TTL: time.Minute, Want: 1, Routes: []string{"default"}})
		cancel()
		if err == nil {
			t.Error("a line that has vanished answers")
		}
		if err := ses.Close(); err != nil {
			t.Error(err)
		}
		if n := pool.Stat().TotalConns(); n > 0 {
			t.Fatalf("the pool counts %d connections after the session is closed", n)
		}
	}
}
