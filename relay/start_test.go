package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/storetest"
)

// deaf does not answer its first question, as over a half-open connection.
type deaf struct {
	*storetest.Mem
	asked atomic.Int32
}

func (d *deaf) Routes(ctx context.Context) ([]outbox.Route, error) {
	if d.asked.Add(1) == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Mem.Routes(ctx)
}

// A relay that starts over a connection without another end asks again: else it
// would neither work nor end.
func TestStartOverADeadConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil, nil)
		g.commit(g.record("k"))
		_, stop := g.start(&deaf{Mem: g.mem}, nil)
		time.Sleep(time.Minute)
		g.stop(stop)
		if n := len(g.rec.Accepted()); n != 1 {
			t.Fatalf("delivered %d messages within a minute, want 1", n)
		}
	})
}
