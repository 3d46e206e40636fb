package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/outbox"
)

// window is one span of trust in the relay's leases, under one owner id. It is
// extended by renewals and, once it has ended, never reopened: a renewal that
// was slow to answer must not revive lanes whose rows another relay may be
// sending already.
type window struct {
	owner  outbox.ID
	start  time.Time // carries the monotonic clock
	until  atomic.Int64
	ended  atomic.Bool
	ctx    context.Context // ends with the window; sends run under it
	cancel context.CancelFunc
	sends  sync.WaitGroup // Sends under way
	timer  *time.Timer
}

func newWindow(ctx context.Context) *window {
	w := &window{owner: outbox.NewID(), start: time.Now()}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// live is asked immediately before bytes go out.
func (w *window) live() bool {
	return !w.ended.Load() && int64(time.Since(w.start)) < w.until.Load()
}

// extend trusts the leases until t after a renewal. false: the window had
// ended before the answer came.
func (w *window) extend(t time.Time) bool {
	if w.until.Load() != 0 && !w.live() {
		w.end()
		return false
	}
	w.until.Store(max(w.until.Load(), int64(t.Sub(w.start))))
	return w.live()
}

// left is how long the window is still trusted.
func (w *window) left() time.Duration {
	return time.Duration(w.until.Load()) - time.Since(w.start)
}

// watch cancels the sends when trust ends, even while a renewal hangs, and
// calls ended then. Calls come from one goroutine, after each extend.
func (w *window) watch(ended func()) {
	if w.timer == nil {
		w.timer = time.AfterFunc(w.left(), func() {
			if !w.live() {
				w.ended.Store(true)
				w.cancel()
				ended()
			}
		})
		return
	}
	w.timer.Reset(w.left())
}

// end ends the window; from the goroutine that watches it.
func (w *window) end() {
	w.ended.Store(true)
	w.cancel()
	if w.timer != nil {
		w.timer.Stop()
	}
}
